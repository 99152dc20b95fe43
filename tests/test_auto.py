"""`auto` computes with `simt`, or with the tensor cores' rung if that takes less time.

The tests run on the CPU device, which can choose for a GPU of a given number of multiprocessors.
With one multiprocessor, small products count as large.
"""

import numpy as np
import pytest

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import printed_by, printed_over_fake_cuda, same_bits, uniform

SETTING = "SGEMM_KERNELS_CPU_MULTIPROCESSORS"
ON_TENSOR_CORES = "waves"
LARGE = (256, 256, 512)  # large for one multiprocessor


def choice(monkeypatch, A, B, multiprocessors):
    """The variant that `auto` chose: their results are bit-identical."""
    monkeypatch.setenv(SETTING, multiprocessors)
    results = {name: run(name, A, B, device="cpu") for name in ("simt", ON_TENSOR_CORES, "auto")}
    assert not same_bits(results["simt"], results[ON_TENSOR_CORES])
    (chosen,) = (n for n, r in results.items() if n != "auto" and same_bits(r, results["auto"]))
    return chosen


@pytest.mark.parametrize(
    ("shape", "multiprocessors", "chosen"),
    [
        (LARGE, "1", ON_TENSOR_CORES),
        (LARGE, "132", "simt"),
        ((256, 256, 256), "1", ON_TENSOR_CORES),
        ((32, 32, 512), "1", "simt"),
        ((1, 3000, 3000), "132", "simt"),
        ((3000, 1, 3000), "132", "simt"),
    ],
)
def test_tensor_cores_where_they_take_less_time(monkeypatch, rng, shape, multiprocessors, chosen):
    M, N, K = shape
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    assert choice(monkeypatch, A, B, multiprocessors) == chosen


def test_the_cpu_device_emulates_tensor_cores_only_on_request(monkeypatch, rng):
    monkeypatch.delenv(SETTING, raising=False)
    M, N, K = LARGE
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    auto, simt, waves = (
        run(name, A, B, device="cpu") for name in ("auto", "simt", ON_TENSOR_CORES)
    )
    assert same_bits(auto, simt)
    assert not same_bits(auto, waves)


def test_any_values_are_within_the_bound(monkeypatch, rng):
    """Includes values for which fp16 pairs are not accurate enough."""
    M, N, K = LARGE
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    A[:, : K // 2] *= np.float32(2.0**-30)
    B[K // 2 :] *= np.float32(2.0**-30)
    C = uniform(rng, M, N)
    monkeypatch.setenv(SETTING, "1")
    result = run("auto", A, B, C=C, alpha=-0.7, beta=0.3, device="cpu")
    assert expect(A, B, C=C, alpha=-0.7, beta=0.3).worst_share(result) <= 1


def test_uses_simt_if_memory_for_fp16_pairs_is_short():
    """The named rung raises. C must still be unchanged, because beta needs it."""
    pytest.importorskip("resource")
    code = f"""
import resource
import numpy as np
from sgemm_kernels import run
from tests.support import same_bits, uniform

rng = np.random.default_rng(0)
A, B = uniform(rng, 128, 2**15), uniform(rng, 2**15, 128)
C = uniform(rng, 128, 128)
def product(name):
    return run(name, A, B, C=C, beta=0.5, device="cpu")
simt, halves, roomy = product("simt"), product({ON_TENSOR_CORES!r}), product("auto")
with open("/proc/self/statm") as sizes:
    now = int(sizes.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + 2**24, resource.RLIM_INFINITY))
try:
    product({ON_TENSOR_CORES!r})
except MemoryError as error:
    print(error)
print(same_bits(roomy, halves), same_bits(product("auto"), simt), same_bits(simt, halves))
"""
    few = {"OPENBLAS_NUM_THREADS": "1", "SGEMM_KERNELS_THREADS": "2", "MALLOC_ARENA_MAX": "1"}
    said, found = printed_by(code, **few, **{SETTING: "1"}).splitlines()
    assert "no memory for 0.03" in said
    assert found == "True True False"


@pytest.mark.fake_cuda
@pytest.mark.parametrize(
    ("shape", "megabytes", "again"),
    [
        ((2600, 256, 2600), 1024, 4),  # 2 x 2 panels: four of the eight uses need no split
        ((2600, 256, 2600), 52, 0),  # too little memory to keep fp16 pairs
        ((256, 256, 82_000), 1024, 5),  # six panels of B, four of them kept at a time, and one of A
    ],
)
def test_a_panel_is_split_once(shape, megabytes, again):
    code = f"""
    M, K, N = {shape}
    A, B = (rng.integers(1, 9, s).astype(np.float32) for s in ((M, K), (K, N)))
    A[:, 64:] = 0
    fake.fake_cuda_prepared_again.restype = ctypes.c_long
    fake.fake_cuda_set_memory(0, {megabytes} << 20)
    result = run({ON_TENSOR_CORES!r}, A, B, device="cuda:0")
    print(np.array_equal(result, A @ B), fake.fake_cuda_prepared_again())
    """
    assert printed_over_fake_cuda(code) == f"True {again}"
