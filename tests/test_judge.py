"""The judge of custom kernels: measured rates, correct but unusual kernels, and single mistakes."""

import re
import tomllib

import pytest

import sgemm_kernels as sk
from sgemm_kernels.custom import for_gpu, nvrtc

from . import judge_rates
from .judge_rates import FOLDER, PAGE, mutants, recorded, with_loop, with_tables
from .support import with_header

pytestmark = pytest.mark.usefixtures("custom_cache")

MUTANTS = {mutant.key: mutant for mutant in mutants()}
EVERY_MUTANT, EVERY_UNUSUAL = 20, 4
"""One of so many is judged here; `python -m tests.judge_rates` judges all."""
QUICK = {"naive", "coalesced", "smem", "tile1d", "tile2d", "vec4", "prefetch", "warptile"}
"""The rungs whose mutants take seconds."""
UNUSUAL = tomllib.loads((FOLDER / "unusual.toml").read_text(encoding="utf-8"))["kernel"]


def of_a_sample(record):
    quick = record["mutant"].partition(",")[0] in QUICK
    return pytest.param(record, id=record["mutant"], marks=() if quick else pytest.mark.thorough)


@pytest.mark.parametrize("record", [of_a_sample(record) for record in recorded()[::EVERY_MUTANT]])
def test_a_mutant_is_judged_as_recorded(record):
    assert judge_rates.judged(MUTANTS[record["mutant"]])["verdict"] == record["verdict"]


def test_the_results_are_of_the_mutants_and_the_page_shows_them():
    judged = {record["mutant"] for record in recorded()}
    assert judged <= set(MUTANTS)
    assert len(MUTANTS) >= 200
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page, recorded()) == page


def unusual(entry):
    if "text" in entry:
        return sk.kernel(entry["text"], name="unusual", grid=entry["grid"], block=entry["block"])
    text = with_loop(entry["rung"])
    for old, new in entry["changes"]:
        assert old in text, old
        text = text.replace(old, new)
    return sk.kernel(text, name="unusual", like=entry["rung"])


def test_there_are_40_unusual_kernels_and_each_compiles_to_another_text():
    assert len({entry["name"] for entry in UNUSUAL}) >= 40


@pytest.mark.parametrize("entry", UNUSUAL[::EVERY_UNUSUAL], ids=lambda entry: entry["name"])
def test_an_unusual_kernel_raises_no_alarm(entry):
    mine = unusual(entry)
    assert mine.check(device="cpu"), mine.check(device="cpu")
    verdict = mine.sanitize()
    assert verdict, verdict


def changed(rung, old, new, name="mine"):
    text = with_header(rung)
    assert old in text
    return sk.kernel(text.replace(old, new), name=name)


STORE = "    store(p, row, col, sum);"


@pytest.mark.parametrize(
    ("new", "kind", "says"),
    [
        (f"{STORE} if (row == 0) exit(1);", "ended its process", "calls exit()"),
        (f"{STORE} if (row == 0) abort();", "ended its process", "abort() ended it"),
        (
            f"{STORE} __shared__ volatile float all[20000]; "
            "all[threadIdx.y * 32 + threadIdx.x] = 0;",
            "too much shared memory",
            "a GPU allows 49152 per block",
        ),
        (
            "    store(p, row, col / 2 * 2, sum);",
            "race",
            "two threads write the same element",
        ),
    ],
    ids=["exit", "abort", "shared memory", "two threads"],
)
def test_sanitize_names_the_cause_and_the_line(new, kind, says):
    first = changed("naive", STORE, new).sanitize(seconds=60).findings[0]
    assert first.kind == kind, first
    assert says in str(first)
    assert first.line is not None


def test_a_launcher_that_reads_an_operand_is_found():
    own = "LAUNCHER(naive) { if (problem->A.data[0] > 2) { return status_ok(); } "
    own += "return launch_tiles(naive, spec, problem, where); }\nVARIANT(naive,"
    first = changed("naive", "RUNG(naive,", own).sanitize().findings[0]
    assert "accesses an operand on the host" in str(first)
    assert first.line is not None


SCRATCH = """LAUNCHER(naive)
{
    const int64_t tiles = tiles_of(problem->C, BM, BN);
    void *memory;
    Status status = scratch_take(tiles * sizeof(float), where, &memory);
    const Given given = {*problem, static_cast<float *>(memory)};
    EARLY status = launch_blocks(naive, spec, tiles, given, where);
    LATE return status;
}
VARIANT(naive,"""
FIRST = "    if (threadIdx.x + threadIdx.y == 0) { given.memory[blockIdx.x] = 0.0f; }\n"
GIVE = "scratch_give(memory, where);"


@pytest.mark.parametrize(
    ("early", "late", "says"),
    [
        ("", GIVE, None),
        (GIVE, "", "writes scratch, element 0 after the launcher has given it back"),
        ("", GIVE + GIVE, "the launcher gives it back twice"),
    ],
)
def test_scratch_memory_is_given_back_once_after_the_last_kernel(early, late, says):
    text = with_header("naive")
    for old, new in (
        ("constexpr int BM", "struct Given { Sgemm p; float *memory; };\nconstexpr int BM"),
        ("(const Sgemm p)\n{\n", "(const Given given)\n{\n    const Sgemm &p = given.p;\n"),
        ("    float sum = 0.0f;\n", FIRST + "    float sum = 0.0f;\n"),
        ("RUNG(naive,", SCRATCH.replace("EARLY", early).replace("LATE", late)),
    ):
        assert old in text
        text = text.replace(old, new)
    verdict = sk.kernel(text, name="scratch").sanitize()
    assert verdict.passed == (says is None), verdict
    if says is not None:
        assert verdict.findings[0].kind == "scratch memory"
        assert says in verdict.findings[0].text
        assert verdict.findings[0].line is not None


def test_check_finds_a_32_bit_index():
    new = "p.A.data[(int)row * (int)p.A.row_stride + k * p.A.col_stride]"
    (first,) = changed("naive", "at(p.A, row, k)", new).check(device="cpu").findings
    assert "a 32-bit index overflows" in first.text


def test_check_recognises_a_c_that_is_read_without_beta():
    new = "if (inside(p.C, row, col)) { float *c = address(p.C, row, col); "
    new += "*c = p.alpha * sum + p.beta * *c; }"
    (first,) = changed("naive", STORE, new).check(device="cpu").findings
    assert first.kind == "uninitialized read"
    assert "C is read although beta is 0" in first.text


@pytest.mark.parametrize("taken", ["wgmma", "waves"])
def test_check_runs_tensor_core_kernels_themselves(taken):
    new = "sum[0][j][r] = part[j][r];"  # the last chunk alone
    text = judge_rates.with_loop(taken).replace("sum[0][j][r] += part[j][r];", new)
    assert new in text
    verdict = sk.kernel(text, name="mine").check(device="cpu")
    assert not verdict.passed


GROUPS = """    if (threadIdx.y < 16) {
        bar_sync<1>(512);
    } else {
        bar_sync<OTHER>(512);
    }
"""


@pytest.mark.parametrize(("other", "passes"), [("2", True), ("1", False)])
def test_two_groups_at_one_named_barrier_are_told(other, passes):
    text = with_header("naive").replace(STORE, GROUPS.replace("OTHER", other) + STORE)
    text = text.replace("    if (!inside(p.C, row, col)) {\n        return;\n    }\n", "")
    text = text.replace("k < p.A.cols", "inside(p.C, row, col) && k < p.A.cols")
    mine = sk.kernel('#include "ptx.h"\n' + text, name="groups")
    verdict = mine.sanitize()
    assert verdict.passed == passes, verdict
    if not passes:
        first = verdict.findings[0]
        assert first.kind == "race"
        assert "bar_sync<1>" in mine.source.splitlines()[first.line - 1]
        assert "each group needs a named barrier of its own" in first.text


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ("float other;", "wrong values"),
        ("__shared__ float all[32]; float other = all[threadIdx.x];", "uninitialized read"),
    ],
)
def test_a_fallback_does_not_hide_what_was_never_set(declared, kind):
    """The kernel computes its result again if it is NaN or huge, as what was never set is here."""
    again = f"    {declared}\n    other += sum + 1.0f;\n"
    again += "    sum = fabsf(other) < 1e30f ? other : sum;\n"
    mine = changed("naive", STORE, again + STORE)
    first = mine.sanitize().findings[0]
    assert first.kind == kind
    line = "store(p" if kind == "wrong values" else "all[threadIdx.x]"
    assert line in mine.source.splitlines()[first.line - 1]


@pytest.mark.parametrize(("along", "size"), [("row", "BM"), ("col", "BN")])
def test_check_has_more_tiles_than_a_band_of_eight(along, size):
    old = "    const Origin tile = tile_origin(p.C, BM, BN);\n"
    wrong = f"    if (tile.{along} >= 9 * {size}) {{ tile.{along} -= {size}; }}\n"
    (first,) = changed("naive", old, old.replace("const ", "") + wrong).check(device="cpu").findings
    assert first.kind == "never set"
    assert f"{'column' if along == 'col' else along} 288" in first.text
    assert first.line is not None


@pytest.mark.thorough
def test_check_has_tiles_of_few_steps_that_blocks_share():
    old, new = "- whole_tiles * steps + 1) * shares - 1)", "- whole_tiles * steps) * shares)"
    (first,) = changed("streamk", old, new).check(device="cpu").findings
    assert "8 multiprocessors" in first.text
    assert first.line is not None


@pytest.mark.thorough
def test_slices_of_a_product_on_tensor_cores_are_watched():
    """The other slice's sums are NaN, so the results are computed again, and are right."""
    mine = changed("fused", "store_slice<Group>(q, work.part,", "store_slice<Group>(q, 0,")
    first = mine.sanitize().findings[0]
    assert first.kind == "race"
    assert "store_slice" in mine.source.splitlines()[first.line - 1]


def test_blocks_of_a_plain_kernel_have_coordinates():
    text = """
    __global__ void sgemm(const float *A, const float *B, float *C, int M, int N, int K)
    {
        int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
        if (x >= N || y >= M) return;
        float sum = 0;
        for (int k = 0; k < K; k++) sum += A[y * K + k] * B[k * N + x];
        C[y * N + x] = sum;
        if (x == 16 && y == 16) C[M * N] = sum;
    }
    """
    plain = sk.kernel(text, name="plain", grid="(N/16, M/16)", block="(16, 16)")
    said = str(plain.sanitize())
    assert re.search(r"in block \(\d+, \d+\)", said), said


@pytest.mark.skipif(not nvrtc.has_nvrtc(), reason="needs NVRTC")
def test_what_a_gpus_compiler_refuses_is_found():
    refused = "#ifdef __CUDACC__\n#error refused\n#endif\nconstexpr int BM = 32, BN = 32;"
    first = changed("naive", "constexpr int BM = 32, BN = 32;", refused).sanitize().findings[0]
    assert first.kind == "does not compile"
    assert first.line is not None


@pytest.mark.parametrize(
    ("static", "total", "says"),
    [(49153, 0, "49152 per block"), (0, 232449, "an H100 has 232448"), (49152, 232448, None)],
)
def test_too_much_shared_memory(static, total, says):
    source = sk.kernel(with_header("naive"), name="mine").made_of
    found = for_gpu.too_much_shared(static, total, source)
    assert [says in str(one) for one in found] == ([True] if says else [])
