"""What check() and sanitize() report for rungs with one mistake each: its kind and its line."""

import tracemalloc

import pytest

import sgemm_kernels as sk
from sgemm_kernels.custom import sanitize
from sgemm_kernels.custom.cases import Tile

from .support import SPLIT_FP16

pytestmark = pytest.mark.usefixtures("custom_cache")

STORE = "*c = beta == 0.0f ? alpha * sum[i][j] : fmaf(beta, *c, alpha * sum[i][j]);"
BARRIER = "        __syncthreads(); // the tiles are complete\n"
GUARD = "if (ty + i < rows && tx + j * COLS < cols) {"
WAIT = "        wait(next, token);\n"

# For each mutant: the rung; the replaced text and its replacement; sanitize()'s finding, in a line
# with this text, and further findings; likewise check()'s finding, None if results are right, or
# UNDEFINED if they depend on what a compiler and the memory make of the mistake.
UNDEFINED = ()
MUTANTS = {
    "missing barrier": (
        "tile2d",
        {BARRIER: ""},
        ("race", "a[i] = As[i];", "As"),
        ("wrong values", "elements in"),
    ),
    "off-by-one tail": (
        "tile2d",
        {
            "for (int left = K; left > 0": "for (int left = K - 1; left > 0",
            "b_k + i < left": "b_k + i <= left",
        },
        ("wrong values", STORE, "no thread reads A[0, 15]"),
        ("wrong values", "wrong at k = "),
    ),
    "wrong edge": (
        "tile2d",
        {GUARD: GUARD.replace("ty + i < rows", "(ty + i + 1 < rows || rows > BM)")},
        ("never set", STORE, "C[127, 0]; this line writes others"),
        ("never set", "row"),
    ),
    "uninitialised sum": (
        "tile2d",
        {"float sum[TM][TN] = {};": "float sum[TM][TN];"},
        ("uninitialized read", "float sum[TM][TN];", "sum"),
        UNDEFINED,
    ),
    "beta read wrongly": (
        "tile2d",
        {"fmaf(beta, *c, alpha * sum[i][j]);": "fmaf(beta, *c / beta, alpha * sum[i][j]);"},
        ("wrong values", "*c / beta", "beta = 0.5"),
        ("wrong values", "C is multiplied by 1 and not by beta"),
    ),
    "alpha twice": (
        "coalesced",
        {"    float *c = C": "    sum *= alpha;\n    float *c = C"},
        ("wrong values", "*c = beta", "alpha = "),
        ("wrong values", "alpha is applied twice"),
    ),
    "bank conflict": (
        "tile2d",
        {
            "Bs[BK][BN];": "Bt[BN][BK + 24];",
            "Bs[b_k + i][b_col]": "Bt[b_col][b_k + i]",
            "Bs[j * COLS];": "Bs[j * COLS * (BK + 24)];",
            "&Bs[k][tx]": "&Bt[tx][k]",
        },
        ("bank conflict", "b[j] = Bs[j * COLS * (BK + 24)];", "16 wavefronts"),
        None,
    ),
    "divergent barrier": (
        "tile2d",
        {BARRIER: f"        if (ty < 64)\n    {BARRIER}"},
        ("divergent barrier", "            __syncthreads();", "thread 128"),
        ("wrong values", "elements in"),
    ),
    "overrun": (
        "tile2d",
        {"for (int k = 0; k < BK; ++k) {": "for (int k = 0; k <= BK; ++k) {"},
        ("out of bounds", "step.read(&As[k][ty], &Bs[k][tx]);", "element 8"),
        UNDEFINED,
    ),
    "endless loop": (
        "tile2d",
        {"left > 0; left -= BK": "left != 0; left -= BK"},
        ("endless", "for (int ", "the loop never ends"),
        ("not finished", "was not done after 2 s"),
    ),
    "wrong stage": (
        "async",
        {"copy(&s.As[stage][": "copy(&s.As[(stage + 1) % STAGES]["},
        ("race", "", "As"),
        ("wrong values", "elements, in"),
    ),
    "missing wait": (
        "async",
        {WAIT: ""},
        ("race", "", "As"),
        ("deadlock", ""),
    ),
    "unaligned float4": (
        "async",
        {"*a = &s.As[0][0][ty],": "*a = &s.As[0][0][ty + 1],"},
        ("unaligned", "", "not a multiple of 16"),
        ("ended its process", "whose address is not a multiple of 16"),
    ),
}


COPIED = """
#include "kernel.h"

__global__ void copied(const Sgemm p)
{
    __shared__ float As[2][16][16], Bs[2][16][16];
    __shared__ uint64_t there;
    const Origin tile = tile_origin(p.C, 16, 16);
    const int x = threadIdx.x, y = threadIdx.y;
    const int64_t row = tile.row + y, col = tile.col + x;
    const bool first = x == 0 && y == 0;
    if (first) {
        grid_mbarrier_init(&there, 256, __LINE__);
    }
    const auto load = [&](int64_t k) {
        const float *const a = inside(p.A, row, k + x) ? address(p.A, row, k + x) : nullptr;
        const float *const b = inside(p.B, k + y, col) ? address(p.B, k + y, col) : nullptr;
        grid_copy_async(&As[k / 16 % 2][y][x], a, 4, __LINE__);
        grid_copy_async(&Bs[k / 16 % 2][y][x], b, 4, __LINE__);
        grid_copy_commit();
    };
    load(0);
    float sum = 0.0f;
    for (int64_t k = 0; k < p.A.cols; k += 16) {
        if (k + 16 < p.A.cols) {
            load(k + 16);
            grid_copy_wait(1);
            __syncthreads();
        } else {
            __syncthreads();
            grid_copy_arrive(&there, __LINE__);
            grid_mbarrier_wait(&there, 0, __LINE__);
        }
        for (int i = 0; i < 16; ++i) {
            sum = multiply_add(As[k / 16 % 2][y][i], Bs[k / 16 % 2][i][x], sum);
        }
        __syncthreads();
    }
    store(p, row, col, sum);
}

constexpr KernelSpec spec = {"copied", {16, 16, 16}, {1, 1}, {16, 16}};
RUNG(copied, "tiles by asynchronous copies, for the CPU device alone", "copied.cu", spec, {8, 0});
"""
"""Results are right even without waits, because copies are immediate on the CPU device."""


@pytest.fixture
def without_nvrtc(monkeypatch):
    """For kernels of the CPU device alone, which do not compile for a GPU."""
    monkeypatch.setenv("SGEMM_KERNELS_NVRTC", "/nowhere")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (None, None, None),
        ("grid_copy_wait(1);", "", "is on its way, and nobody waited for it"),
        ("grid_copy_wait(1);", "grid_copy_wait(2);", "is on its way, and nobody waited for it"),
        ("grid_mbarrier_wait(&there, 0, __LINE__);", "", "is on its way, and nobody waited for it"),
        ("grid_copy_arrive(", "grid_mbarrier_arrive(", "is on its way, and nobody waited for it"),
        # Each thread waits for its own copies but reads those of other threads.
        ("grid_copy_wait(1);\n            __syncthreads();", "grid_copy_wait(1);", "no barrier"),
    ],
)
@pytest.mark.usefixtures("without_nvrtc")
def test_a_missing_wait_for_an_asynchronous_copy_is_found(old, new, says):
    assert old is None or COPIED.count(old) == 1
    mine = sk.kernel(COPIED if old is None else COPIED.replace(old, new), name="copied")
    assert mine.check(device="cpu").passed or says == "no barrier"
    verdict = mine.sanitize(seconds=60)
    assert verdict.passed == (old is None), verdict
    if old is not None:
        assert {finding.kind for finding in verdict.findings} == {"race"}
        assert all(finding.file == "copied.cu" for finding in verdict.findings), verdict
        assert any(
            says in str(finding) and "multiply_add(As" in finding_line(verdict, finding)
            for finding in verdict.findings
        ), verdict


CLUSTERED = """
#include "kernel.h"

struct Parts {
    float As[16][16], Bs[1]; // sums
};

__global__ void clustered(const Sgemm p)
{
    Parts &parts = dynamic_shared<Parts>();
    const int rank = grid_cluster_rank(), x = threadIdx.x, y = threadIdx.y;
    const int64_t across = (p.C.cols + 15) / 16, tile = blockIdx.x / 2;
    const int64_t row = tile / across * 16 + y, col = tile % across * 16 + x;
    const int64_t half = p.A.cols / 2, end = rank == 0 ? half : p.A.cols;
    float sum = 0.0f;
    for (int64_t k = rank == 0 ? 0 : half; inside(p.C, row, col) && k < end; ++k) {
        sum = multiply_add(at(p.A, row, k), at(p.B, k, col), sum);
    }
    parts.As[y][x] = sum;
    grid_cluster_barrier(__LINE__); // all parts are there
    if (y / 8 == rank) {
        sum = 0.0f;
        for (int other = 0; other < 2; ++other) {
            sum += *static_cast<const float *>(grid_cluster_shared(&parts.As[y][x], other));
        }
        store(p, row, col, sum);
    }
    grid_cluster_barrier(__LINE__); // nobody reads any more
}

constexpr KernelSpec spec = {.symbol = "clustered",
                             .block_tile = {16, 16, 1},
                             .thread_tile = {1, 1},
                             .threads = {16, 16},
                             .dynamic_bytes = sizeof(Parts),
                             .cluster = 2};
LAUNCHER(clustered)
{
    return launch_blocks(clustered, spec, 2 * tiles_of(problem->C, 16, 16), *problem, where);
}
VARIANT(clustered, "two blocks share K, for the CPU device alone", "clustered.cu", spec,
        {9, 0});
"""
ALL_THERE = "grid_cluster_barrier(__LINE__); // all parts are there"


@pytest.mark.usefixtures("without_nvrtc")
def test_a_cluster_reduction_is_right_and_counted():
    mine = sk.kernel(CLUSTERED, name="clustered")
    assert mine.check(device="cpu").passed
    verdict = mine.sanitize()
    assert verdict.passed, verdict
    assert {finding.kind for finding in verdict.findings} <= {"uncoalesced"}
    accesses = sk.trace(mine, 16, 16, 20).accesses
    (parts_read,) = [a for a in accesses if a.operand == "As" and a.kind == "load"]
    assert parts_read.requests == 2 * 4 * 2  # four storing warps per block read from both


@pytest.mark.parametrize("instead", ["", "__syncthreads();"])
def test_a_missing_barrier_of_the_cluster_is_a_race_between_its_blocks(instead):
    assert CLUSTERED.count(ALL_THERE) == 1
    verdict = sk.kernel(CLUSTERED.replace(ALL_THERE, instead), name="clustered").sanitize()
    assert {finding.kind for finding in verdict.findings} >= {"race"}, verdict
    race = next(finding for finding in verdict.findings if finding.kind == "race")
    assert "of block " in str(race), verdict
    assert "no barrier of the cluster is between them" in str(race), verdict


def test_a_block_that_ends_while_its_cluster_reads_its_memory_is_found():
    last = "grid_cluster_barrier(__LINE__); // nobody reads any more"
    assert CLUSTERED.count(last) == 1
    mine = sk.kernel(CLUSTERED.replace(last, ""), name="clustered")
    for verdict in (mine.check(device="cpu"), mine.sanitize()):
        assert not verdict.passed
        assert "of its cluster, which may have ended" in str(verdict), verdict


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (".cluster = 2", ".cluster = 16", "at most 8 blocks and 3072 threads per cluster"),
        ("2 * tiles_of(", "1 + 2 * tiles_of(", "cannot be launched in clusters of 2"),
        (".dynamic_bytes", ".static_bytes = 64, .dynamic_bytes", "no arrays of shared memory"),
    ],
)
def test_unsupported_clusters_are_refused(old, new, says):
    assert CLUSTERED.count(old) == 1
    mine = sk.kernel(CLUSTERED.replace(old, new), name="clustered")
    assert says in str(mine.check(device="cpu"))


@pytest.mark.parametrize(
    "prints", ["half a line", "case\\tno case\\n", "done\\n"], ids=["half a line", "a case", "done"]
)
def test_output_of_a_kernel_hides_no_finding(prints):
    printing = "#include <cstdio>\n" + COPIED.replace(
        "if (first) {", f'if (first) {{\n        printf("{prints}");'
    )
    assert sk.kernel(printing, name="printing").sanitize()
    wait = "grid_copy_wait(1);"
    verdict = sk.kernel(printing.replace(wait, ""), name="printing").sanitize()
    assert {finding.kind for finding in verdict.findings} == {"race"}
    assert 3 <= verdict.cases <= len(sanitize.cases_for(Tile(16, 16, 16)))


@pytest.mark.parametrize(
    "ends", ["_exit(0)", "_exit(3)", 'printf("done\\n"), fflush(stdout), _exit(1)']
)
def test_a_kernel_that_ends_its_process_at_a_later_product_fails(ends):
    text = COPIED.replace("float sum = 0.0f;", f"float sum = 0.0f; if (p.beta == 1) {{ {ends}; }}")
    headers = "#include <cstdio>\n#include <unistd.h>\n"
    verdict = sk.kernel(headers + text, name="ending").sanitize()
    assert [finding.kind for finding in verdict.findings] == ["ended its process"]
    assert "beta = 1" in str(verdict.findings[0])


def test_a_kernel_with_endless_output_is_stopped_and_its_output_not_kept():
    text = COPIED.replace("float sum = 0.0f;", f'float sum = 0.0f; for (;;) puts("{"x" * 200}");')
    printing = sk.kernel("#include <cstdio>\n" + text, name="printing")
    tracemalloc.start()
    verdict = printing.sanitize(seconds=1)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [finding.kind for finding in verdict.findings] == ["not finished"]
    assert most < 10e6


def finding_line(verdict, finding):
    return verdict.source.splitlines()[finding.line - 1]


def mutant(name):
    rung, changes, _, _ = MUTANTS[name]
    text = sk.source(rung)
    for old, new in changes.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return sk.kernel(text, name=name.replace(" ", "_").replace("-", "_"), like=rung)


@pytest.mark.parametrize("name", MUTANTS)
def test_sanitize_names_the_mistake_and_its_line(name):
    kind, line_has, says = MUTANTS[name][2]
    verdict = mutant(name).sanitize(seconds=60)
    first = verdict.findings[0]
    assert first.kind == kind, verdict
    assert says in str(first), verdict
    if line_has is None:
        assert first.line is None, verdict
    else:
        assert line_has in verdict.source.splitlines()[first.line - 1], verdict
    assert verdict.passed == (kind == "bank conflict")


@pytest.mark.parametrize("name", [name for name in MUTANTS if MUTANTS[name][3] != UNDEFINED])
def test_check_describes_the_mistake(name):
    expected = MUTANTS[name][3]
    endless = MUTANTS[name][2][0] == "endless"
    verdict = mutant(name).check(device="cpu", seconds=2 if endless else 60)
    if expected is None:
        assert verdict.passed, verdict
    else:
        first = verdict.findings[0]
        assert first.kind == expected[0], verdict
        assert expected[1] in str(first), verdict
        assert expected[0] not in ("wrong values", "never set") or first.line is not None, verdict


@pytest.mark.thorough
@pytest.mark.parametrize("taken", [v.name for v in sk.variants() if v.file is not None])
def test_a_rung_has_no_findings(taken):
    mine = sk.kernel(sk.source(taken), name="mine", like=taken)
    verdict = mine.sanitize()
    assert verdict.passed, verdict
    assert mine.sanitized
    harmless = {"uncoalesced"}
    if taken in SPLIT_FP16:
        harmless.add("bank conflict")  # operands are split once for all tiles
    assert {finding.kind for finding in verdict.findings} <= harmless
    assert mine.check(device="cpu").passed
