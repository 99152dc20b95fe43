"""How the GPUs of `device='cuda:all'` share the panels of B, over the fake CUDA runtime."""

import json

import pytest

from .support import printed_over_fake_cuda

pytestmark = pytest.mark.fake_cuda

PRELUDE = """
import json, signal, time, zlib
DEVICES = int(os.environ.get("FAKE_CUDA_DEVICES", 2))
fake.fake_cuda_from_host.restype = ctypes.c_size_t
ENOUGH = 1 << 30
# Rows of A, and memory of each GPU. B has 4 MiB, from which on two GPUs share it.
WAYS = {
    "one panel": (8, ENOUGH),
    "panels that reuse slots": (64, 3 << 19),
    "each panel several times": (600, 3 << 19),
    "split-K": (300, 1 << 20),
}

def operands(rows):
    return uniform(rng, rows, 1024), uniform(rng, 1024, 1024)

def set_memory(*bytes_of):
    sgemm_kernels.memory(empty=True)
    for device in range(DEVICES):
        fake.fake_cuda_set_memory(device, bytes_of[device % len(bytes_of)])

def on_all(*args, variant="tile2d", **options):
    '''The product on all GPUs, and how many bytes came to them from the host.'''
    before = [fake.fake_cuda_from_host(device) for device in range(DEVICES)]
    result = run(variant, *args, device="cuda:all", **options)
    return result, sum(fake.fake_cuda_from_host(device) for device in range(DEVICES)) - sum(before)

def live():
    '''Memory in use after idle memory is freed.'''
    gc.collect()
    account = sgemm_kernels.memory(empty=True)
    return [fake.fake_cuda_live(device) for device in range(DEVICES)], account.live_bytes
"""


def printed(code, **environment):
    return printed_over_fake_cuda(PRELUDE + code, **environment)


@pytest.mark.parametrize("devices", [2, 3])
def test_b_is_copied_from_the_host_once(devices):
    """In every layout: gathered in chunks by the host, or copied directly by the GPU."""
    code = """
from tests.support import LAYOUTS
A, B = operands(8)
C = uniform(rng, 8, 1024)
expected = run("tile2d", A, B, C=C, alpha=0.3, beta=0.7, device="cpu")
pinned = [sgemm_kernels.empty((1024, 1024)), sgemm_kernels.empty((1024, 1024)).T]
for array in pinned:
    array[...] = B
for array in [layout.place(B).matrix for layout in LAYOUTS.values()] + pinned:
    out = np.asfortranarray(C)
    result, copied_bytes = on_all(A, array, C=out, alpha=0.3, beta=0.7, out=out)
    assert result is out and same_bits(result, expected), array.strides
    assert copied_bytes == A.nbytes + B.nbytes + C.nbytes, (copied_bytes, array.strides)
print("once")
"""
    assert printed(code, FAKE_CUDA_DEVICES=str(devices)) == "once"


def test_b_of_odd_shapes():
    code = """
for K, N in ((1023, 1029), (1031, 1025), (3, 349_526), (349_526, 3), (2**20, 1)):
    A, B = uniform(rng, 2, K), uniform(rng, K, N)
    expected = run("coalesced", A, B, device="cpu")
    for array in (B, np.asfortranarray(B)):
        result, copied_bytes = on_all(A, array, variant="coalesced")
        assert same_bits(result, expected), (K, N)
        assert copied_bytes < A.nbytes + 1.4 * B.nbytes, (K, N, copied_bytes)
A, B = uniform(rng, 128, 12), uniform(rng, 12, 102_400)  # two panels per GPU, which fit
result, copied_bytes = on_all(A, B)
assert same_bits(result, run("tile2d", A, B, device="cpu")) and copied_bytes == A.nbytes + B.nbytes
A, B = operands(8)
assert not on_all(A[:, :0], B[:0])[0].any()
result, copied_bytes = on_all(A, B, C=A, beta=0.5, alpha=0)
assert same_bits(result, 0.5 * A) and copied_bytes == A.nbytes
print("right")
"""
    assert printed(code) == "right"


@pytest.mark.parametrize("devices", [2, 3])
def test_consecutive_panels(devices):
    """Results are bit-identical to those without sharing, for any number of panels and repeats."""
    code = """
fake.fake_cuda_set_peers(reach)
fake.fake_cuda_set_delay(delay)
found = {}
for way, (rows, memory) in WAYS.items():
    A, B = operands(rows)
    set_memory(memory)
    result, copied_bytes = on_all(A, B)
    found[way] = zlib.crc32(result), (copied_bytes - A.nbytes) / B.nbytes
print(json.dumps(found))
"""
    found, unshared = (
        json.loads(
            printed(f"reach, delay = {reach}, {delay}\n{code}", FAKE_CUDA_DEVICES=str(devices))
        )
        for reach, delay in ((1, 1000), (0, 0))
    )
    for way, (bits, times) in found.items():
        assert bits == unshared[way][0], way
        if way != "split-K":  # A is copied several times too
            assert times * devices == unshared[way][1], way
    assert found["one panel"][1] == found["panels that reuse slots"][1] == 1
    assert found["each panel several times"][1] > 1


@pytest.mark.parametrize("late", [0, 1])
def test_a_slot_is_refilled_only_after_a_late_gpu_has_read_it(late):
    """Values of another panel would cause far larger errors than rounding. Split-K results are not
    compared bit for bit: the number of slices depends on free memory, and another thread may be
    freeing memory meanwhile."""
    code = f"""
for way in ("panels that reuse slots", "split-K"):
    rows, memory = WAYS[way]
    A, B = operands(rows)
    exact, size = A.astype(float) @ B, abs(A.astype(float)) @ abs(B)
    set_memory(memory)
    for delay_us in (0, 3000):
        fake.fake_cuda_set_peer_delay({late}, delay_us)
        print((abs(on_all(A, B)[0] - exact) <= 1024 * 2.0**-24 * size).all())
"""
    assert printed(code).split() == ["True"] * 4


@pytest.mark.parametrize("late", [0, 1])
def test_memory_is_freed_only_after_a_late_gpu_has_read_it(late):
    code = f"""
A, B = operands(2)
expected = run("coalesced", A, B, device="cpu")
fake.fake_cuda_set_peer_delay({late}, 20_000)
ended = threading.Event()
def free_memory():
    while not ended.wait(0.002):
        sgemm_kernels.memory(empty=True)
freer = threading.Thread(target=free_memory)
freer.start()
try:
    print(all(same_bits(on_all(A, B, variant="coalesced")[0], expected) for _ in range(5)))
finally:
    ended.set()
freer.join()
"""
    assert printed(code) == "True"


def test_each_gpu_has_workers_that_gather():
    """The second GPU gets as many threads as the first, up to the number of cores."""
    code = """
def threads():
    return len(os.listdir("/proc/self/task"))
A, B = operands(8)
for device in range(DEVICES):
    run("tile2d", A, B, device=f"cuda:{device}")
one = threads()
on_all(A, B)
print(threads() - one)
"""
    assert printed(code, SGEMM_KERNELS_THREADS="40") == "15"
    assert printed(code, SGEMM_KERNELS_THREADS="20") == "4"
    assert printed(code, SGEMM_KERNELS_THREADS="3") == "0"


def test_a_small_b_and_unequal_panels_are_not_shared():
    code = """
A, B = uniform(rng, 8, 1024), uniform(rng, 1024, 1000)
expected = run("tile2d", A, B, device="cpu")
result, copied_bytes = on_all(A, B)
assert same_bits(result, expected) and copied_bytes == A.nbytes + 2 * B.nbytes
A, B = operands(64)
expected = run("tile2d", A, B, device="cpu")
set_memory(ENOUGH, 3 << 19)
result, copied_bytes = on_all(A, B)
assert same_bits(result, expected) and copied_bytes == A.nbytes + 2 * B.nbytes
print("unshared")
"""
    assert printed(code) == "unshared"


def test_a_thread_that_cannot_start_is_not_waited_for():
    """The thread's stack would exceed the address space."""
    code = """
from sgemm_kernels import _core
_core._open_cublas(_core.__file__)  # the fake cuBLAS starts no threads, unlike kernels on the CPU
A, B = (rng.integers(-4, 5, shape).astype(np.float32) for shape in ((9, 1024), (1024, 1024)))
for device in range(DEVICES):  # starts all threads except those of the call
    expected = run(_core._REFERENCE, A, B, device=f"cuda:{device}")
libc, attributes = ctypes.CDLL(None), ctypes.create_string_buffer(256)
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 48))
assert libc.pthread_setattr_default_np(attributes) == 0
result, copied_bytes = on_all(A, B, variant=_core._REFERENCE)
assert same_bits(result, expected)
print(copied_bytes == A.nbytes + DEVICES * B.nbytes)
"""
    for devices in ("2", "3"):
        assert printed(code, FAKE_CUDA_DEVICES=devices) == "True"


@pytest.mark.parametrize(("way", "step"), [("one panel", 1), ("panels that reuse slots", 13)])
@pytest.mark.parametrize("code", [2, 999])
def test_a_failure_on_one_gpu_ends_the_call_on_all(way, step, code):
    """Each CUDA call fails in turn: one exception, no leak, and the next call works."""
    script = f"""
A, B = operands(WAYS[{way!r}][0])
expected = run("tile2d", A, B, device="cpu")
set_memory(WAYS[{way!r}][1])
on_all(A, B)
before, handles, failures = live(), fake.fake_cuda_handles(), 0
for number in range(1, 10_000, {step}):
    fake.fake_cuda_fail(number, {code})
    try:
        assert same_bits(on_all(A, B)[0], expected)
    except sgemm_kernels.Error as failed:
        failures += 1
        assert "cuda:" in str(failed), failed
    except ValueError:  # a GPU of unknown compute capability is not usable
        assert fake.fake_cuda_failed_call() == b"cudaDeviceGetAttribute"
    failed = fake.fake_cuda_failed_call()
    fake.fake_cuda_fail(0, 0)
    if not failed:
        break
    assert live() == before, (number, failed, live(), before)
if WAYS[{way!r}][1] == ENOUGH:  # otherwise some calls create streams to wait for memory
    assert fake.fake_cuda_handles() == handles
print(failures > 10)
"""
    assert printed(script) == "True"


def test_a_lost_gpu_ends_the_call_on_all():
    code = """
fake.fake_cuda_set_delay(500)
A, B = operands(600)
set_memory(3 << 19)
on_all(A, B)
calls = fake.fake_cuda_calls()
on_all(A, B)
fake.fake_cuda_fail((fake.fake_cuda_calls() - calls) // 2, 719)
try:
    on_all(A, B)
except DeviceError as error:
    print("one of 2 GPUs" in str(error))
"""
    assert printed(code) == "True"


def test_ctrl_c_while_gpus_wait_for_each_other():
    code = """
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
A, B = operands(600)
expected = run("tile2d", A, B, device="cpu")
set_memory(3 << 19)
on_all(A, B)
before = live()
fake.fake_cuda_set_delay(20_000)
out = np.full(expected.shape, np.nan, np.float32)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    on_all(A, B, out=out)
except KeyboardInterrupt:
    print(np.isnan(out).any())  # it was not completed first
fake.fake_cuda_set_delay(0)
assert live() == before
assert same_bits(on_all(A, B)[0], expected)
"""
    assert printed(code) == "True"


ON_ONE_GPU = """
from tests.exporters import FAKES
def helpers(M, N, K, delay_us=0, variant="vec4"):
    '''How many other GPUs compute rows of a product whose operands are on the first one.'''
    for device in range(1, DEVICES):
        fake.fake_cuda_set_peer_delay(device, delay_us)
    A, B = (FAKES["ByDlpack"](uniform(rng, *shape)) for shape in ((M, K), (K, N)))
    expected = np.asarray(run(variant, A, B, device="cuda:0"))
    run(variant, A, B, device="cuda:all")  # which measures the link
    sgemm_kernels.memory(empty=True)
    before = [fake.fake_cuda_live(device) for device in range(1, DEVICES)]
    assert same_bits(np.asarray(run(variant, A, B, device="cuda:all")), expected)
    after = [fake.fake_cuda_live(device) for device in range(1, DEVICES)]
    return sum(later > earlier for earlier, later in zip(before, after))
"""


@pytest.mark.parametrize(
    ("shape", "delay_us", "expected"),
    [
        ((400, 400, 400), 0, "3"),
        ((400, 400, 400), 25_000, "1"),  # with more GPUs, copies would wait for each other
        ((400, 400, 400), 100_000, "0"),
        ((40, 40, 40), 0, "0"),
    ],
    ids=["fast link", "medium link", "slow link", "small"],
)
def test_gpus_help_with_operands_on_one_of_them_only_if_that_is_faster(shape, delay_us, expected):
    code = ON_ONE_GPU + f"print(helpers(*{shape}, {delay_us}))"
    assert printed(code, FAKE_CUDA_DEVICES="4") == expected


def test_faster_tensor_cores_need_less_help():
    code = (
        ON_ONE_GPU
        + """
from sgemm_kernels import _core
before = helpers(400, 400, 400, variant="mma")
_core._keep_proof("a fake GPU", 8, 0, 1e6, 1.0)
print(before, helpers(400, 400, 400, variant="mma"), helpers(400, 400, 255, variant="mma"))
"""
    )
    assert printed(code, FAKE_CUDA_DEVICES="4", FAKE_CUDA_MAJOR="8") == "3 0 3"
