"""Custom kernels that crash or never end, and damaged caches, do not harm the caller's process."""

import json
import os
import shutil
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels as sk
from sgemm_kernels import _cache, _core
from sgemm_kernels._catalog import kernel_file
from sgemm_kernels.custom import cases, child_process, compiler, sanitize, tuning
from sgemm_kernels.custom.cases import Tile
from sgemm_kernels.custom.compiler import Source, deferred_async_build, library, sanitizer_build
from sgemm_kernels.custom.diagnosis import Finding
from sgemm_kernels.custom.failures import placed

from .support import with_header
from .test_custom import ENDLESS, SMALLEST, operands

pytestmark = pytest.mark.usefixtures("custom_cache")

STORE = "store(p, row, col, sum);"
LOOP = "for (int64_t k = 0; inside(p.C, row, col) && k < p.A.cols; ++k)"


def changed(old, new):
    assert SMALLEST.count(old) == 1, old
    return SMALLEST.replace(old, new)


def found(verdict):
    """The kind of the first finding, and the text of its line."""
    first = verdict.findings[0]
    line = None if first.line is None else verdict.source.splitlines()[first.line - 1].strip()
    return first.kind, line


# ------------------------------------------------------------------ check() and sanitize()


@pytest.mark.parametrize("tile", [Tile(128, 128, 8), Tile(16, 16, 2), Tile(1, 64, 4)])
def test_sanitize_uses_every_value_that_check_uses(tile):
    """Except long sums and rows far apart: watching these would take minutes."""
    checked = [case for case in cases.cases_for(tile) if case.K < cases.DEEP and not case.apart]
    watched = sanitize.cases_for(tile)
    for name in (field.name for field in fields(cases.Case)):
        values = {getattr(case, name) for case in checked}
        assert values <= {getattr(case, name) for case in watched}, name
    for pair in (("A_by_columns", "A_shift"), ("B_by_columns", "B_shift")):
        values = {tuple(getattr(case, name) for name in pair) for case in checked}
        assert values <= {tuple(getattr(case, name) for name in pair) for case in watched}, pair


@pytest.mark.parametrize(("taken", "deep"), [("naive", False), ("splitk", True)])
def test_sanitize_uses_a_deep_k_for_kernels_that_may_split_it(taken, deep):
    source = sk.kernel(with_header(taken), name="mine").made_of
    watched = sanitize.cases_of(Tile(128, 256, 32), source)
    assert any(case.K >= cases.DEEP for case in watched) == deep


ALL_TILES = "        load_work<T>(q, work, number == blockIdx.x, to, shared);\n"


@pytest.mark.parametrize(
    ("name", "old", "new", "kind", "at"),
    [
        ("splitk", "        p.alpha = 1.0f;\n", "", "wrong values",
         "store(s.p, index / N, index % N, sum);"),
        ("splitk", "    if (index >= size) {\n        return;\n    }\n", "", "out of bounds",
         "sum += s.partial_sums[slice * size + index];"),
        pytest.param("fused", ALL_TILES, ALL_TILES + "        return;\n", "deadlock",
                     "mbarrier_wait(shared.full + ahead.index", marks=pytest.mark.thorough),
    ],
)  # fmt: skip
def test_products_that_share_out_work_reach_every_branch(name, old, new, kind, at):
    """Blocks that compute several tiles, slices of K with alpha, and a ragged sum of them."""
    text = sk.source(name)  # with the header of fused in its place: a finding gives a line alone
    text = text.replace('#include "fused_tiles.h"\n', kernel_file("fused_tiles.h"))
    assert text.count(old) == 1
    source = Source(Path("mine.cu"), text.replace(old, new))
    late = name == "fused"  # the checking build lacks its fallback
    program, _ = library(source, deferred_async_build() if late else sanitizer_build())
    few = cases.shared_out(Tile(128, 128 if late else 256, 32), source)
    finding = sanitize.in_order(sanitize.watch_these(program, few, source, 60))[0]
    assert finding.kind == kind
    assert at in source.text.splitlines()[finding.line - 1]


def test_sanitize_finds_a_kernel_that_is_wrong_for_k_0():
    text = changed(LOOP, "for (unsigned k = 0; k <= unsigned(p.A.cols) - 1 && k < 1000; ++k)")
    verdict = sk.kernel(text, name="wraps").sanitize()
    assert not verdict
    assert found(verdict)[0] == "out of bounds"


def test_a_kernel_runs_in_this_process_after_it_passed_both():
    mine = sk.kernel(SMALLEST + "// both\n", name="mine")
    assert mine.sanitize()
    assert (mine.sanitized, mine.checked, mine.in_this_process) == (True, False, False)
    assert mine.check(device="cpu")
    assert mine.in_this_process
    wrong = sk.kernel(changed(STORE, "store(p, row, col, sum + 1);"), name="w")
    assert not wrong.check(device="cpu")
    assert not wrong.sanitize()
    assert not wrong.in_this_process


def test_sanitize_uses_nan_and_infinity():
    text = changed(STORE, "store(p, row, col, sum == sum ? sum : 0.0f);")
    verdict = sk.kernel(text, name="mine").sanitize()
    assert found(verdict)[0] == "wrong values"
    assert "a NaN in A" in str(verdict)


# ------------------------------------------------------------------ the cache


@pytest.fixture
def cache(tmp_path, monkeypatch, custom_cache):
    """A cache of its own, with the parts that every kernel is linked with."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    for path in custom_cache.glob("*.o"):
        for each in (path, path.with_suffix(".sha256")):
            shutil.copy(each, folder)
    monkeypatch.setenv(_cache.VARIABLE, str(folder))
    return folder


@pytest.mark.parametrize("damage", [lambda content: b"", lambda content: content[:-4096]])
def test_a_damaged_library_is_rebuilt(cache, damage):
    one = np.ones((3, 3), np.float32)
    sk.kernel(SMALLEST, name="mine")
    for path in (*cache.glob("*.so"), next(cache.glob("*.o"))):
        path.write_bytes(damage(path.read_bytes()))
    mine = sk.kernel(SMALLEST, name="mine")
    assert sk.run(mine, one, one, device="cpu")[0, 0] == 3
    library = compiler.library(mine.made_of, compiler.run_build())[0]
    assert _core._open_kernel(str(library), "mine", "mine.cu")[2] == "mine"


def test_a_forged_or_foreign_note_is_ignored(cache):
    for name in ("check", "sanitize"):
        assert getattr(sk.kernel(SMALLEST, name="mine"), name)()
    good = {path.name: path.read_bytes() for path in cache.glob("*.passed")}
    assert len(good) == 2
    crashes = sk.kernel(changed(STORE, "*static_cast<float *>(nullptr) = sum;"), name="crashes")
    _cache.note("key", ".passed", "passed")
    forged = [b"", b"passed", *good.values(), (cache / "key.passed").read_bytes()]
    keys = [compiler.digest_of([what, crashes._verdict_key]) for what in ("check", "sanitize")]
    for content in forged:
        for key in keys:
            (cache / f"{key}.passed").write_bytes(content)
        assert not crashes.in_this_process
    assert sk.kernel(SMALLEST, name="mine").in_this_process


def test_a_note_is_valid_for_one_compiler_its_options_and_this_version(cache, monkeypatch):
    mine = sk.kernel(SMALLEST, name="mine")
    assert mine.check(device="cpu")
    assert sk.kernel(SMALLEST, name="mine").checked
    with monkeypatch.context() as patches:
        patches.setattr(compiler, "__version__", "0.0")
        assert not sk.kernel(SMALLEST, name="mine").checked
    with monkeypatch.context() as patches:
        patches.setattr(compiler, "_WARNINGS", ("-Wall",))
        assert not sk.kernel(SMALLEST, name="mine").checked
    monkeypatch.setenv("CXX", "c++ -O1")
    assert not sk.kernel(SMALLEST, name="mine").checked


def test_a_forged_time_is_ignored(cache):
    text = SMALLEST.replace("sum = 0.0f", "sum = TUNABLE(FIRST, 0)")
    mine = sk.kernel(text, name="mine")

    def tuned():
        return sk.tune(mine, {"FIRST": [0]}, 20, device="cpu", seconds=0.05).candidates[0]

    honest = tuned()
    (note,) = cache.glob("*.trial")
    digest, _, text = note.read_text().partition("\n")
    note.write_text(f"{digest}\n{text.replace(str(honest.seconds[0]), '1e-12')}")
    assert tuned().seconds[0] > 1e-9


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o1777])
def test_a_cache_writable_by_others_is_not_used(cache, mode):
    cache.chmod(0o755)  # others may only read
    assert _cache.folder() == cache
    cache.chmod(mode)
    with pytest.warns(RuntimeWarning, match="other users can write to it: chmod go-w"):
        assert _cache.folder() != cache
    cache.chmod(0o700)
    assert _cache.folder() == cache


def test_a_cache_of_another_user_is_not_used(cache, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.warns(RuntimeWarning, match="it belongs to another user"):
        assert _cache.folder() != cache


def test_a_new_cache_is_private(tmp_path, monkeypatch):
    monkeypatch.setenv(_cache.VARIABLE, str(tmp_path / "new"))
    before = os.umask(0)
    try:
        assert _cache.folder().stat().st_mode & 0o777 == 0o700
    finally:
        os.umask(before)


# ------------------------------------------------------------------ time limits


ENDLESS_LOOP = "float sum = 0.0f; for (volatile int n = ENDLESS; n;) n = n;"


def test_an_endless_trace_ends_sanitize():
    """Only the traced build is endless."""
    text = changed("float sum = 0.0f;", ENDLESS_LOOP)
    text = f"""#if defined(SGEMM_SANITIZED) || !defined(SGEMM_TRACED)
#define ENDLESS 0
#else
#define ENDLESS 1
#endif
{text}"""
    mine = sk.kernel(text, name="mine")
    compiler.library(mine.made_of, compiler.sanitizer_build())
    compiler.library(mine.made_of, compiler.access_trace_build())
    verdict = mine.sanitize(seconds=3)
    assert [finding.kind for finding in verdict.findings] == ["not finished"]


def test_a_kernel_that_disables_the_time_limit_is_killed():
    text = "#include <csignal>\n#include <unistd.h>\n" + ENDLESS.replace(
        "n = n;", "sleep(1000);"
    ).replace("float sum = 0.0f;", "float sum = 0.0f; std::signal(SIGALRM, SIG_IGN);")
    mine = sk.kernel(text, name="mine")
    compiler.library(mine.made_of, compiler.sanitizer_build())
    verdict = mine.sanitize(seconds=2)
    (found,) = verdict.findings
    assert found.kind == "not finished"
    assert "0 of 28 products finished before it" in found.text


def test_tune_skips_an_endless_candidate(tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "START_S", 5.0)
    monkeypatch.setattr(tuning, "_SMALL_S", 1.0)
    path = tmp_path / "mine.cu"
    path.write_text(
        changed("float sum = 0.0f;", ENDLESS_LOOP.replace("ENDLESS", "TUNABLE(ENDLESS, 0)"))
    )
    tuned = sk.tune(path, {"ENDLESS": [1, 0]}, 20, device="cpu", seconds=0.05)
    assert [c.verdict for c in tuned.candidates] == ["took too long", "right"]


def test_an_endless_compiler_is_killed_with_its_children(tmp_path, monkeypatch):
    tool = tmp_path / "c++"
    tool.write_text(
        "#!/bin/sh\ncase $* in\n*--version* | *-E*) echo mine;;\n*) sleep 10000;;\nesac\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("CXX", str(tool))
    monkeypatch.setattr(compiler, "_COMPILE_S", 0.5)
    with pytest.raises(sk.Error, match=r"was ended after 0\.5 s"):
        sk.kernel(SMALLEST, name="mine")


def test_a_library_that_does_not_open_in_time_is_reported(monkeypatch):
    monkeypatch.setattr("sgemm_kernels.custom.kernel.START_S", 4.0)
    text = "static int wait() { for (volatile int i = 0;;) i = i; }\nstatic int here = wait();\n"
    text += changed("float sum = 0.0f;", "float sum = 0.0f * here;")
    found = sk.kernel(text, name="mine").sanitize(seconds=1).findings
    assert [finding.kind for finding in found] == ["not finished"]


def test_the_earlier_of_two_time_limits_counts():
    child = child_process.Child("mine")
    assert child.call(child_process.is_child)
    with pytest.raises(child_process.EndlessError, match=r"something after 0\.2 s"):
        child.call_within(0.2, time.sleep, 60)
    child.limit_s = 0.3
    with pytest.raises(child_process.EndlessError):
        child.call(time.sleep, 60)
    child.end()


# ------------------------------------------------------------------ findings and their lines


def test_a_store_through_null_is_a_finding_with_its_line():
    store = "*static_cast<float *>(nullptr) = sum;"
    bad = sk.kernel(changed(STORE, store), name="bad")
    assert found(bad.check(device="cpu")) == ("ended its process", store)
    assert found(bad.sanitize()) == ("out of bounds", store)


def test_throw_is_refused_when_the_kernel_is_loaded():
    with pytest.raises(sk.CompileError, match=r"bad\.cu:11:.*exception handling disabled"):
        sk.kernel(changed(STORE, "if (sum > 3) throw 1; " + STORE), name="bad")


def test_an_exception_of_a_library_is_a_finding():
    text = "#include <vector>\n" + changed(STORE, "std::vector<int>().at(3); " + STORE)
    bad = sk.kernel(text, name="bad")
    for verdict in (bad.check(device="cpu"), bad.sanitize()):
        assert verdict.findings[0].kind == "ended its process"
        assert verdict.findings[0].line is not None


@pytest.mark.parametrize("tile", ["0, 16, 1", "16, 0, 1", "16, -16, 1"])
def test_an_invalid_tile_is_a_finding_with_the_line_of_the_spec(tile):
    bad = sk.kernel(changed(".block_tile = {16, 16, 1}", f".block_tile = {{{tile}}}"), name="bad")
    for verdict in (bad.check(device="cpu"), bad.sanitize()):
        kind, line = found(verdict)
        assert kind == "launch failed"
        assert f".block_tile = {{{tile}}}" in line
    A, B = operands(3, 4, 5)
    for call in (
        lambda: sk.trace(bad, 32, 32, 8),
        lambda: sk.explain(bad),
        lambda: sk.run(bad, A, B, device="cpu"),
    ):
        with pytest.raises(sk.UnsupportedVariantError, match="block_tile of"):
            call()


def test_a_refused_tma_copy_is_a_finding_with_the_line_of_the_launch():
    source = sk.source("tma")
    refused = source.replace(
        "LAUNCHER(tma)\n{",
        'LAUNCHER(tma)\n{\n    return status_error(STATUS_DEVICE, "TMA refuses this tile");',
    )
    assert refused != source
    bad = sk.kernel(refused, name="bad")
    for verdict in (bad.check(device="cpu"), bad.sanitize()):
        assert found(verdict) == ("launch failed", "LAUNCHER(tma)")


# ------------------------------------------------------------------ texts in pages and pictures


def test_a_comment_does_not_end_or_hide_the_data_of_a_page(tmp_path):
    comment = "// <!-- <script> </script> ]]> $data\n"
    mine = sk.kernel(SMALLEST + comment, name="mine")
    sk.explain(mine).save(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = page.partition('id="data">')[2].partition("</script>")[0]
    assert "<" not in data
    assert json.loads(data)["kernels"][0]["files"][0]["text"] == mine.source


def test_a_tuning_of_a_file_with_dollars_in_its_name_is_drawn():
    pytest.importorskip("matplotlib")
    candidate = sk.Candidate({"BM": 64}, "right", seconds=(1e-3,))
    shapes, space = ((64, 64, 64),), {"BM": (64,)}
    found = sk.Tuning(
        "a$b^$_{.cu", "a GPU", "cuda", shapes, space, {"BM": 64}, (candidate,), False, "0" * 16
    )
    found.plot().canvas.draw()


def test_a_line_beyond_the_file_is_of_a_header():
    source = compiler.Source(Path("mine.cu"), "one\ntwo")
    within = Finding("divergent barrier", "waits at line 2", file="mine.cu", line=2)
    assert placed(within, source) == within
    beyond = placed(Finding("divergent barrier", "waits at line 3", file="mine.cu", line=3), source)
    assert (beyond.file, beyond.line) == (None, None)
    assert beyond.text == "waits at line 3; mine.cu ends at line 2: the line is in a header"
