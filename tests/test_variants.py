"""The ladder as data."""

import dataclasses
import itertools

import numpy as np
import pytest

from sgemm_kernels import _core, run, variants
from sgemm_kernels._catalog import kernel_place
from sgemm_kernels._launches import launches

from .support import NO_GPU, OVER_HIP, printed_by

LIBRARY = ["splitk", "streamk", "tma", "mma", "wgmma", "waves", "fused"]
LADDER = [*launches(), *LIBRARY]
RUNGS = [variant for variant in variants() if variant.file is not None]
TILES_HELD = {"prefetch": 2, "warptile": 2, "async": 4, "raster": 4, "splitk": 4}
TILES_HELD |= {"streamk": 4, "tma": 4, "mma": 3, "wgmma": 6, "waves": 6, "fused": 6}
"""Number of tiles of each operand in shared memory, if it is not one."""
COPYING = {"wgmma": 128, "waves": 128, "fused": 128}
"""Number of threads of a block that only copy."""


def test_order_is_ladder_then_reference_then_choices():
    choices = ["simt", "auto", "invariant"]
    assert [variant.name for variant in variants()] == [*LADDER, _core._REFERENCE, *choices]


@pytest.mark.parametrize("entry", variants(), ids=lambda variant: variant.name)
class TestEntry:
    def test_is_frozen(self, entry):
        with pytest.raises(dataclasses.FrozenInstanceError):
            entry.name = "other"
        assert not hasattr(entry, "__dict__")
        assert hash(entry) == hash(dataclasses.replace(entry))

    def test_has_a_summary(self, entry):
        assert 10 < len(entry.summary) < 90
        assert entry.summary == entry.summary.strip()

    def test_repr_is_one_line_with_the_name(self, entry):
        assert entry.name in repr(entry)
        assert "\n" not in repr(entry)
        assert len(repr(entry)) < 160

    def test_runs_on_known_kinds_of_device(self, entry):
        assert set(entry.devices) <= {"cpu", _core._GPU_KIND}
        assert entry.min_compute_capability >= (7, 5)


@pytest.mark.parametrize(
    ("number", "kernel"),
    [pytest.param(n, v, id=v.name) for n, v in enumerate(RUNGS, start=1)],
)
class TestRung:
    def test_is_the_kernel_of_its_file(self, number, kernel):
        names = {"ladder": f"{number:02}_{kernel.name}.cu", "gemm": f"{kernel.name}.cu"}
        assert kernel.file == names[kernel_place(kernel.file).partition("/")[0]]
        assert "__global__" in kernel.source
        head = list(itertools.takewhile(lambda s: s.startswith("//"), kernel.source.splitlines()))
        for line in ("idea", "block", "traffic", "bound by", "next"):
            assert any(text.startswith(f"// {line}") for text in head), line

    def test_has_a_valid_geometry(self, number, kernel):
        BM, BN, BK = kernel.block_tile
        TM, TN = kernel.thread_tile
        assert BK >= 1
        owning = kernel.threads - COPYING.get(kernel.name, 0)
        assert TM * TN * owning == BM * BN, "every result belongs to one thread"
        assert kernel.threads <= 1024
        assert kernel.threads % 32 == 0
        most = 48 * 1024 if kernel.min_compute_capability < (8, 0) else 227 * 1024
        assert 0 <= kernel.shared_bytes <= most, "what a GPU has, and without asking before 8.0"

    def test_runs_on_the_cpu(self, number, kernel):
        assert "cpu" in kernel.devices
        assert kernel.unavailable is None


def test_rungs_from_smem_on_hold_their_tiles_in_shared_memory():
    for rung in RUNGS[2:]:
        BM, BN, BK = rung.block_tile
        tiles, rest = divmod(rung.shared_bytes, 4 * BK * (BM + BN))
        assert tiles == TILES_HELD.get(rung.name, 1), rung.name
        assert rest < rung.shared_bytes // 4, "padding at most"


def test_the_reference_has_no_source_and_says_why_it_is_unavailable():
    script = """
        from sgemm_kernels import _core, variants
        reference = next(v for v in variants() if v.name == _core._REFERENCE)
        assert reference.file is None and reference.source is None
        assert _core._cuda_problem() in reference.unavailable
        print(reference.unavailable)
    """
    assert f"'{_core._REFERENCE}'" in printed_by(script, **NO_GPU)


@pytest.mark.skipif(OVER_HIP, reason="rocBLAS comes in no extra")
@pytest.mark.parametrize("hidden", ["the finder", "the library"])
def test_a_missing_cublas_names_the_extra(hidden):
    """Either library of the extra may be missing."""
    script = f"""
        import sys, types
        import sgemm_kernels
        from sgemm_kernels import _cublas

        class NotFound(RuntimeError):
            pass

        def load_nvidia_dynamic_lib(name):
            raise NotFound(name)

        finder = types.ModuleType("cuda.pathfinder")
        finder.DynamicLibNotFoundError = NotFound
        finder.load_nvidia_dynamic_lib = load_nvidia_dynamic_lib
        sys.modules["cuda.pathfinder"] = None if {hidden!r} == "the finder" else finder
        try:
            _cublas.load()
        except sgemm_kernels.UnsupportedVariantError as error:
            print(error)
    """
    message = printed_by(script)
    assert "'cublas'" in message
    assert "pip install 'nvidia-cublas>=13' cuda-pathfinder" in message


def test_the_launched_kernels_are_named(device):
    square = np.ones((40, 40), np.float32)
    assert _core._launched(True) == frozenset()
    try:
        run("smem", square, square, device=device)
        run("tile2d", square, square, device=device)
        assert _core._launched(False) == {"smem", "tile2d"}
        run("smem", square, square, device=device)
    finally:
        assert _core._launched(False) == frozenset()
