"""Arrays on a GPU: imported, multiplied, and exported, without a copy through the host.

With a GPU and PyTorch or CuPy, these tests use them. Everywhere, they also run in a separate
process over the fake CUDA runtime with arrays from tests/exporters.py, together with
tests/on_fake_gpu.py, whose tests need more of a library than real ones offer."""

import contextlib
import gc
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import run

from .exporters import (
    FAKE,
    GPU,
    LIBRARIES,
    Stream,
    quiet_import,
    readme_call_from_pytorch,
    refused,
)
from .support import (
    LAYOUTS,
    ending,
    fake_cuda,
    printed_over_fake_cuda,
    python,
    resident_bytes,
    same_bits,
    uniform,
)

M, N, K = 37, 45, 30


@pytest.fixture(params=LIBRARIES)
def lib(request):
    return LIBRARIES[request.param]()


@pytest.fixture
def operands(rng):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


if not FAKE:

    @pytest.mark.fake_cuda
    @pytest.mark.timeout(900)
    @pytest.mark.parametrize(
        "file",
        [
            *("test_on_gpu.py", "on_fake_gpu.py", "on_fake_exchange.py", "on_fake_many.py"),
            *("on_fake_contiguous.py", "on_fake_16bit.py", "on_fake_addend.py"),
            *("on_fake_prepared.py", "test_c_api.py"),
        ],
    )
    def test_over_the_fake_cuda_runtime(file):
        path = str(Path(__file__).with_name(file))
        code = f"""
            import sys, pytest
            sys.exit(pytest.main(["-v", "-x", "-p", "no:cacheprovider", {path!r}]))
        """
        # If a signal ends the process, faulthandler prints the test and each thread's stack.
        process = python(code, fake_cuda(), PYTHONFAULTHANDLER="1")
        assert process.returncode == 0, ending(process)
        assert " passed" in process.stdout

    @pytest.mark.fake_cuda
    def test_a_result_in_a_forked_child():
        code = """
            from tests.exporters import FAKES
            result = run("vec4", *(FAKES["ByDlpack"](uniform(rng, 9, 9)) for _ in range(2)))
            uses = (
                lambda: np.asarray(result),
                lambda: result.__dlpack__(),
                lambda: result.__dlpack__(copy=True),
                lambda: result.__dlpack__(stream=-1),
                lambda: result.__cuda_array_interface__,
                lambda: run("vec4", result, result),
            )
            child = os.fork()
            if child == 0:
                right = 0
                calls = fake.fake_cuda_calls()
                for use in uses:
                    try:
                        use()
                    except DeviceError as error:
                        right += "fork" in str(error) and "spawn" in str(error)
                del result
                os._exit(10 * (fake.fake_cuda_calls() - calls) + len(uses) - right)
            print(os.waitpid(child, 0)[1], np.asarray(result).shape)
        """
        assert printed_over_fake_cuda(code) == "0 (9, 9)"

    @pytest.mark.fake_cuda
    def test_only_the_gpu_of_the_operands_is_used():
        """A GPU that the process has not used keeps its memory, and no context stays current."""
        code = """
            from tests.exporters import FAKES, GPU, Imported, core
            A, B = uniform(rng, 30, 40), uniform(rng, 40, 50)
            run("vec4", A, B, device=f"{GPU}:1")
            exported = [FAKES["ByDlpack"](values, device=1) for values in (A, B)]
            stream = core.library_stream(1)
            core.library_hold(stream, ctypes.addressof(is_open := ctypes.c_int(0)))
            result = run("vec4", *exported, stream=stream)
            assert result.__cuda_array_interface__["stream"] == 1
            is_open.value = 1
            assert same_bits(np.asarray(result), run("vec4", A, B, device="cpu"))
            Imported(run("vec4", *exported), copy=True)
            sgemm_kernels.memory(empty=True)
            contexts = [core.fake_cuda_has_context(device) for device in (0, 1)]
            print(core.library_device(), *contexts)
        """
        assert printed_over_fake_cuda(code) == "0 0 1"


# ---------------------------------------------------------------------------- products


def test_the_result_on_the_gpu_is_bit_identical_to_the_host_result(lib, operands):
    A, B, C = operands
    expected = run("vec4", A, B, C=C, alpha=1.5, beta=-0.5, device=GPU)
    result = run("vec4", lib.put(A), lib.put(B), C=lib.put(C), alpha=1.5, beta=-0.5)
    assert type(result) is lib.result_type
    assert same_bits(lib.host(result), expected)


def test_a_device_array_describes_itself(lib, operands):
    A, B = (lib.without_exchange(lib.put(values)) for values in operands[:2])
    result = run("vec4", A, B)
    assert type(result) is sgemm_kernels.DeviceArray
    assert (result.shape, result.dtype, result.device) == ((M, N), np.float32, f"{GPU}:0")
    assert repr(result) == f"DeviceArray(shape=(37, 45), dtype=float32, device='{GPU}:0')"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout(lib, operands, layout):
    A, B, C = operands
    expected = run("vec4", A, B, C=C, beta=0.5, device=GPU)
    for index in range(3):
        placed = LAYOUTS[layout].place(operands[index])
        if not lib.takes(placed.matrix):
            pytest.skip("cannot be said by this protocol")
        args = [lib.put(values) for values in operands]
        args[index] = lib.put(placed.matrix, placed.memory)
        result = run("vec4", args[0], args[1], C=args[2], beta=0.5)
        assert same_bits(lib.host(result), expected), index


@pytest.mark.parametrize(
    "name", ["vec4", "prefetch", "async", "raster", "splitk", "streamk", "tma", "simt", "auto"]
)
def test_a_large_column_major_b(lib, rng, variants_on, name):
    """`simt` first copies B to memory of the package; rungs read it in place. C has no remainder
    rows or columns here: their order of summation may depend on B's layout."""
    if name not in variants_on[f"{GPU}:0"]:
        pytest.skip("the rung has no counterpart on this GPU")
    M, N, K = (3075, 70, 45) if FAKE else (3200, 3328, 3003)
    A, B = uniform(rng, M, K), uniform(rng, K, N)
    placed = LAYOUTS["F with padded columns"].place(B)
    expected = run(name, lib.put(A), lib.put(B))
    result = run(name, lib.put(A), lib.put(placed.matrix, placed.memory))
    assert same_bits(lib.host(result), lib.host(expected))


@pytest.mark.parametrize("beta", [0.0, -0.7])
@pytest.mark.parametrize("layout", [name for name, value in LAYOUTS.items() if value.writeable])
def test_out_in_every_layout(lib, operands, layout, beta):
    A, B, C = operands
    placed = LAYOUTS[layout].place(C)
    if not lib.takes(placed.matrix):
        pytest.skip("cannot be said by this protocol")
    out = lib.put(placed.matrix, placed.memory)
    expected = run("vec4", A, B, C=C, beta=beta, device=GPU)
    assert run("vec4", lib.put(A), lib.put(B), C=lib.put(C), beta=beta, out=out) is out
    assert same_bits(lib.get(out), expected)
    rest = lib.view(
        out, placed.memory[: placed.memory.nbytes // 4 * 4].view("f4")[None], placed.memory
    )
    after = placed.memory.copy()
    start = placed.matrix.ctypes.data - placed.memory.ctypes.data
    np.ndarray((M, N), placed.matrix.dtype, after, start, placed.matrix.strides)[...] = expected
    written = lib.get(rest).view(np.uint8).ravel()
    assert np.array_equal(written, after[: written.size]), "and nothing else"


@pytest.mark.parametrize("operand", [0, 1, 2], ids=["A", "B", "C"])
def test_out_may_overlap_an_operand(lib, rng, operand):
    shapes = [(6, 5), (5, 7), (6, 7)]
    size, room = int(np.prod(shapes[operand])), 6 * 7
    for offset in range(0, size + room + 1, 3):
        values = [uniform(rng, *shape) for shape in shapes]
        memory = uniform(rng, 2 * room + size)
        place = memory[room : room + size].reshape(shapes[operand])
        place[...] = values[operand]
        apart = run("vec4", *values[:2], C=values[2], beta=0.5, device=GPU)
        args = [lib.put(value) for value in values]
        args[operand] = lib.put(place, memory)
        out = lib.view(args[operand], memory[offset : offset + room].reshape(6, 7), memory)
        run("vec4", args[0], args[1], C=args[2], beta=0.5, out=out)
        assert same_bits(lib.get(out), apart), offset


def test_out_may_be_every_operand(lib, rng):
    A = uniform(rng, 50, 50)
    expected = run("vec4", A, A.T, C=A, beta=1, device=GPU)
    exported = lib.put(A)
    transposed = lib.view(exported, A.T, A)
    assert run("vec4", exported, transposed, C=exported, beta=1, out=exported) is exported
    assert same_bits(lib.get(exported), expected)


@pytest.mark.parametrize("shape", [(0, 5, 4), (5, 0, 4), (0, 0, 4), (3, 5, 0), (0, 0, 0)])
def test_empty(lib, rng, shape):
    m, n, k = shape
    C = uniform(rng, m, n)
    A, B = lib.put(uniform(rng, m, k)), lib.put(uniform(rng, k, n))
    result = run("vec4", A, B, C=lib.put(C), beta=2)
    assert type(result) is lib.result_type
    assert same_bits(lib.host(result), 2 * C)
    out = lib.put(C.copy())
    assert run("vec4", A, B, out=out) is out


def test_alpha_0_reads_neither_a_nor_b(lib, rng):
    nan = np.full((6, 6), np.nan, np.float32)
    C = uniform(rng, 6, 6)
    result = run("vec4", lib.put(nan), lib.put(nan), C=lib.put(C), alpha=0, beta=3)
    assert same_bits(lib.host(result), 3 * C)
    result = run("vec4", lib.put(C), lib.put(C), C=lib.put(nan), beta=0)
    assert not np.isnan(lib.host(result)).any()


def test_a_result_is_an_operand_and_out(lib, operands):
    A, B, C = operands
    first = run("vec4", lib.put(A), lib.put(B))
    expected = run("vec4", lib.host(first).T.copy(), C, device=GPU)
    second = run("vec4", lib.put(lib.host(first).T), lib.put(C))
    assert same_bits(lib.host(second), expected)
    assert run("vec4", lib.put(A), lib.put(B), C=first, beta=1, out=first) is first
    assert same_bits(
        lib.host(first),
        run("vec4", A, B, C=run("vec4", A, B, device=GPU), beta=1, device=GPU),
    )


def test_every_rung(lib, operands, variants_on):
    A, B, _ = operands
    for name in variants_on[f"{GPU}:0"]:
        if name == "cublas":
            continue
        expected = run(name, A, B, device=GPU)
        assert same_bits(lib.host(run(name, lib.put(A), lib.put(B))), expected), name


# ---------------------------------------------------------------------------- refused arguments


def test_numpy_mixed_with_a_gpu(lib, operands):
    A, B, C = operands
    refused(TypeError, f"A is on {GPU}:0", "B is a numpy.ndarray", "(B", A=lib.put(A), B=B)
    refused(TypeError, f"B is on {GPU}:0", "A is a numpy.ndarray", "(A", A=A, B=lib.put(B))
    exported = {"A": lib.put(A), "B": lib.put(B)}
    refused(TypeError, "C is a numpy.ndarray", **exported, C=C)
    refused(TypeError, "out is a numpy.ndarray", **exported, out=C)
    refused(TypeError, f"out is on {GPU}:0", "A is a numpy.ndarray", A=A, B=B, out=lib.put(C))


def test_wrong_shapes_and_dimensions(lib, operands):
    A, B, C = (lib.put(values) for values in operands)
    refused(ValueError, "(37, 30)", "(37, 45)", "pass A.T", A=A, B=C)
    refused(ValueError, "C is (37, 30)", "(37, 45)", A=A, B=B, C=A)
    refused(ValueError, "out is (37, 30)", "(37, 45)", A=A, B=B, out=A)
    refused(
        ValueError, "C is (1, 37, 45)", "(37, 45)", A=A, B=B, C=lib.put(operands[2][np.newaxis])
    )
    refused(ValueError, "A's 45 elements must match B's 30 rows", A=lib.put(operands[2][0]), B=B)
    refused(ValueError, "beta is 2", "pass C", A=A, B=B, beta=2)
    refused(TypeError, "C must be", A=A, B=B, C=[1])
    refused(TypeError, "B must be", A=A, B=None)


def test_the_device_follows_from_the_operands(lib, operands):
    A, B = (lib.put(values) for values in operands[:2])
    expected = lib.host(run("vec4", A, B))
    for device in (GPU, f"{GPU}:0", None):
        assert same_bits(lib.host(run("vec4", A, B, device=device)), expected)
    refused(ValueError, f"on {GPU}:0", "'cpu'", "device=None", A=A, B=B, device="cpu")
    refused(ValueError, "no device called 'gpu'", A=A, B=B, device="gpu")
    refused(TypeError, "device must be a str", A=A, B=B, device=0)
    refused(sgemm_kernels.DeviceError, f"{GPU}:99", A=A, B=B, device=f"{GPU}:99")


def test_the_error_for_torch_says_what_to_do(operands):
    torch = quiet_import("torch")
    A, B = (torch.from_numpy(values) for values in operands[:2])
    if "torch" in LIBRARIES:
        on_host = A
        A, B = A.cuda(), B.cuda()
        refused(TypeError, "A is in host memory", "A.cuda()", "B.cpu()", A=on_host, B=B)
        refused(
            TypeError,
            "torch.from_numpy(B.astype('float32')).cuda()",
            "A.cpu().numpy()",
            A=A,
            B=operands[1],
        )
        refused(TypeError, "A has dtype torch.float64", "A.float()", A=A.double(), B=B)
        refused(ValueError, "A.detach()", A=A.requires_grad_(), B=B)


# ---------------------------------------------------------------------------- exporting results


def test_a_result_copied_to_the_host(lib, operands):
    A, B = (lib.without_exchange(lib.put(values)) for values in operands[:2])
    result = run("vec4", A, B)
    expected = run("vec4", *operands[:2], device=GPU)
    assert same_bits(np.array(result), expected)
    assert np.asarray(result, dtype=np.float64).dtype == np.float64
    with pytest.raises(ValueError, match="copy"):
        np.asarray(result, copy=False)
    assert same_bits(np.from_dlpack(result, device="cpu"), expected)


def test_a_result_computes_nothing(lib, operands):
    A, B = (lib.without_exchange(lib.put(values)) for values in operands[:2])
    result = run("vec4", A, B)
    for operation in (
        lambda: result + 1,
        lambda: operands[2] + result,
        lambda: np.add(result, 1),
        lambda: sgemm_kernels.DeviceArray(),
    ):
        with pytest.raises(TypeError):
            operation()


def test_exporting_a_result_copies_nothing(lib, operands):
    A, B = (lib.without_exchange(lib.put(values)) for values in operands[:2])
    result = run("vec4", A, B)
    expected = np.asarray(result)
    imported = lib.import_result(result)
    assert lib.address(imported) == result.__cuda_array_interface__["data"][0]
    assert same_bits(lib.get(imported), expected)
    again = run("vec4", A, B, C=imported, beta=1)
    assert same_bits(np.asarray(again), np.asarray(run("vec4", A, B, C=result, beta=1)))


@pytest.mark.parametrize("first", ["the result", "the importer"])
def test_memory_lives_as_long_as_either_array(lib, operands, first):
    A, B = (lib.without_exchange(lib.put(values)) for values in operands[:2])
    other = lib.without_exchange(lib.put(operands[0] * 0))
    result = run("vec4", A, B)
    imported = lib.import_result(result)
    expected = np.asarray(result)
    if first == "the result":
        del result
    else:
        del imported
    for _ in range(200):
        lib.import_result(run("vec4", other, B))
    left = np.asarray(result) if first == "the importer" else lib.get(imported)
    assert same_bits(left, expected)


@pytest.mark.skipif(not LIBRARIES or FAKE, reason="needs a GPU")
def test_jax(operands, monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = quiet_import("jax")
    A, B, C = (jax.device_put(values, jax.devices("gpu")[0]) for values in operands)
    result = run("vec4", A, B, C=C, beta=1)
    assert same_bits(
        np.asarray(result), run("vec4", *operands[:2], C=operands[2], beta=1, device=GPU)
    )
    assert same_bits(np.asarray(jax.dlpack.from_dlpack(result)), np.asarray(result))
    refused(ValueError, "out is read-only", A=A, B=B, out=C)
    on_host = jax.device_put(operands[0], jax.devices("cpu")[0])
    refused(TypeError, "A is in host memory", "numpy.asarray(A)", A=on_host, B=B)


@pytest.mark.skipif(not LIBRARIES or FAKE, reason="needs a GPU")
def test_numba(operands):
    cuda = quiet_import("numba.cuda")
    A, B, C = (cuda.to_device(values) for values in operands)
    assert run("vec4", A, B, C=C, beta=1, out=C) is C
    expected = run("vec4", *operands[:2], C=operands[2], beta=1, device=GPU)
    assert same_bits(C.copy_to_host(), expected)
    result = run("vec4", A, B)
    assert same_bits(cuda.as_cuda_array(result).copy_to_host(), np.asarray(result))


# ---------------------------------------------------------------------------- streams


def test_the_call_waits_for_the_operands(lib, operands):
    expected = run("vec4", *operands[:2], device=GPU)
    B = lib.without_exchange(lib.put(operands[1]))
    run("vec4", lib.put(operands[0]), B)
    out = lib.put(operands[2])
    with lib.late(operands[0]) as A:
        result = run("vec4", lib.without_exchange(A), B)
    with lib.late(operands[0]) as A:
        run("vec4", A, B, out=out)
    assert same_bits(lib.host(result), expected)
    assert same_bits(lib.get(out), expected)


@pytest.mark.skipif("cupy" not in LIBRARIES, reason="needs CuPy and a GPU")
def test_streams_of_cupy(operands):
    cupy = quiet_import("cupy")
    A, B = (cupy.asarray(values) for values in operands[:2])
    expected = np.asarray(run("vec4", A, B))
    side = cupy.cuda.Stream(non_blocking=True)
    for stream in (side, side.ptr, cupy.cuda.Stream.null, cupy.cuda.Stream.null.ptr):
        result = run("vec4", A, B, stream=stream)
        assert same_bits(cupy.asarray(result).get(), expected)


@pytest.mark.skipif("torch" not in LIBRARIES, reason="needs PyTorch and a GPU")
def test_streams_of_torch(operands):
    torch = quiet_import("torch")
    A, B = (torch.from_numpy(values).cuda() for values in operands[:2])
    expected = run("vec4", A, B).cpu().numpy()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        late = A * 1
        result = run("vec4", late, B, stream=side.cuda_stream)
        assert not side.query(), "the call did not wait"
        taken = torch.from_dlpack(result)
        assert same_bits(taken.cpu().numpy(), expected)


@pytest.mark.skipif("torch" not in LIBRARIES, reason="needs PyTorch and a GPU")
def test_a_result_in_another_stream_than_the_current_one(operands):
    """PyTorch reuses memory in the order of its current stream, which does not wait for others."""
    torch = quiet_import("torch")
    A, B = (torch.from_numpy(values).cuda() for values in operands[:2])
    side = torch.cuda.Stream()
    result = run("vec4", A, B, stream=side)
    assert type(result) is sgemm_kernels.DeviceArray
    assert same_bits(np.asarray(result), run("vec4", A, B).cpu().numpy())
    with torch.cuda.stream(side):
        assert type(run("vec4", A, B, stream=side)) is torch.Tensor


@pytest.mark.skipif("torch" not in LIBRARIES, reason="needs PyTorch and a GPU")
def test_the_readmes_call_from_pytorch():
    names = {}
    exec(readme_call_from_pytorch(), names)
    x, y = (names[name].cpu().numpy() for name in "xy")
    np.testing.assert_allclose(y, x @ x.T, rtol=1e-4)


def test_invalid_streams_are_refused(lib, operands):
    A, B = (lib.put(values) for values in operands[:2])
    for stream in ("a", 1.5, object(), Stream("a"), type("Odd", (), {"__cuda_stream__": int})()):
        refused(TypeError, A=A, B=B, stream=stream)
    refused(ValueError, "stream is -1", A=A, B=B, stream=-1)
    expected = lib.host(run("vec4", A, B))
    for stream in (None, 0, 1):
        assert same_bits(lib.host(run("vec4", A, B, stream=stream)), expected)


def test_a_stream_for_host_arrays_is_refused():
    one = np.ones((1, 1), np.float32)
    refused(ValueError, "stream is only for arrays on a GPU", "omit stream", A=one, B=one, stream=1)


# ---------------------------------------------------------------------------- many calls


def test_nothing_is_left_behind(lib, operands):
    A, B, C = (lib.put(values) for values in operands)

    def calls(count):
        for index in range(count):
            match index % 5:
                case 0:
                    run("vec4", A, B)
                case 1:
                    run("vec4", A, B, C=C, beta=1, out=C)
                case 2:
                    lib.import_result(run("vec4", A, B))
                case 3:
                    with contextlib.suppress(ValueError):
                        run("vec4", A, C)
                case 4:
                    with contextlib.suppress(TypeError):
                        run("vec4", A, operands[1])

    calls(1000)
    gc.collect()
    counts = [sys.getrefcount(array) for array in (A, B, C)]
    blocks, resident = sys.getallocatedblocks(), resident_bytes()
    calls(2000)
    gc.collect()
    assert [sys.getrefcount(array) for array in (A, B, C)] == counts
    # A leak of one object per call, or of one result in ten, would exceed these limits.
    assert sys.getallocatedblocks() - blocks < 200
    assert resident_bytes() - resident < 200 * operands[2].nbytes // 2


# ---------------------------------------------------------------------------- threads


def test_8_threads(lib, rng):
    sizes = [(40 + 9 * i, 70 - i, 33 + i) for i in range(8)]
    failures = []

    def work(m, n, k):
        try:
            rng = np.random.default_rng(m)
            A, B = uniform(rng, m, k), uniform(rng, k, n)
            expected = run("vec4", A, B, device=GPU)
            exported = lib.put(A), lib.put(B)
            for _ in range(20):
                assert same_bits(lib.host(run("vec4", *exported)), expected)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=size) for size in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
