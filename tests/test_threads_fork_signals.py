"""Threads, forked children, and Ctrl-C."""

import platform
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from sgemm_kernels import run

from .support import deep, printed_by, printed_over_fake_cuda, python, same_bits, uniform


def test_eight_threads_of_sixty_calls(device, variants_on, rng):
    # Nothing is promised about cuBLAS's bits.
    names = [name for name in variants_on[device] if name != "cublas"]
    problems = []
    for index in range(60):
        name = names[index % len(names)]
        M, N, K = rng.integers(1, 140, 3)
        A, B = uniform(rng, M, deep(name, K)), uniform(rng, deep(name, K), N)
        problems.append((name, A, B))
    expected = [run(*problem, device=device) for problem in problems]
    start = threading.Barrier(8)

    def calls(shift):
        start.wait()
        return [
            same_bits(run(*problems[i % 60], device=device), expected[i % 60])
            for i in range(shift, shift + 60)
        ]

    with ThreadPoolExecutor(8) as pool:
        assert all(map(all, pool.map(calls, range(8))))


def test_other_threads_run_during_a_call(variant, device):
    """A ticking thread ticks many times during one call, if the call is long enough. A call that
    holds the interpreter's lock lets it tick once or twice at most, however long it is."""
    ticks = 0
    stop = threading.Event()

    def tick():
        nonlocal ticks
        while not stop.wait(0.001):
            ticks += 1

    ticker = threading.Thread(target=tick)
    ticker.start()
    try:
        seen, n = 0, 256
        while seen < 5 and n < 10_000:
            A = np.ones((n, n), np.float32)
            before = ticks
            run(variant.name, A, A, device=device)
            seen, n = ticks - before, n * 3 // 2
    finally:
        stop.set()
        ticker.join()
    assert seen >= 5


FORKS = """
    import os
    import numpy as np
    from sgemm_kernels import DeviceError, run

    A = np.random.default_rng(1).uniform(-1, 1, (150, 150)).astype(np.float32)
    expected = run("smem", A, A, device={device!r})
    on_cpu = run("smem", A, A, device="cpu")

    def cpu_works():
        return np.array_equal(run("smem", A, A, device="cpu"), on_cpu)

    def refused(device):
        try:
            run("smem", A, A, device=device)
        except DeviceError as error:
            return "fork" in str(error) and "device='cpu'" in str(error) and "spawn" in str(error)
        return False

    def in_child(check):
        child = os.fork()
        if child == 0:
            os._exit(0 if check() else 1)
        return os.waitpid(child, 0)[1] == 0

    print({check})
    assert np.array_equal(run("smem", A, A, device={device!r}), expected), "the parent still works"
"""


def test_the_cpu_in_a_forked_grandchild(device):
    check = "in_child(lambda: cpu_works() and in_child(cpu_works))"
    assert printed_by(FORKS.format(device=device, check=check)) == "True"


def test_a_gpu_in_a_forked_child(device):
    if device == "cpu":
        pytest.skip("needs a GPU")
    check = "in_child(lambda: refused(None) and refused('cuda') and refused('cuda:0'))"
    assert printed_by(FORKS.format(device=device, check=check)) == "True"
    check = "in_child(lambda: in_child(lambda: refused(None) and cpu_works()))"
    assert printed_by(FORKS.format(device=device, check=check)) == "True"


@pytest.mark.fake_cuda
def test_a_parents_result_on_a_gpu_in_a_forked_child():
    """Every access to its memory raises an error that says what to do. None calls CUDA, and neither
    does its destruction."""
    code = """
        from tests.exporters import FAKES
        A, B = uniform(rng, 30, 40), uniform(rng, 40, 50)
        plain, other = (FAKES[name](A.T.copy()) for name in ("ByDlpack", "ByInterface"))
        exported = FAKES["ByDlpack"](A), FAKES["ByDlpack"](B)
        result = run("vec4", *exported)
        expected = np.asarray(result)
        ways = {
            "asarray": lambda r: np.asarray(r),
            "asarray, transposed": lambda r: np.asarray(r.T),
            "export": lambda r: r.__dlpack__(),
            "export, unordered": lambda r: r.__dlpack__(stream=-1),
            "export a copy": lambda r: r.__dlpack__(copy=True),
            "export to the host": lambda r: r.__dlpack__(dl_device=(1, 0)),
            "interface": lambda r: r.__cuda_array_interface__,
            "operand": lambda r: run("vec4", r, r.T),
            "out": lambda r: run("vec4", r, r.T, out=r),
            "by DLPack": lambda r: run("vec4", plain, r),
            "by interface": lambda r: run("vec4", other, r),
            "by interface alone": lambda r: run("vec4", other, other),
        }

        def said(way):
            try:
                way(result)
            except DeviceError as error:
                return str(error)
            return ""

        child = os.fork()
        if child == 0:
            calls = fake.fake_cuda_calls()
            silent = [name for name, way in ways.items() if "fork" not in said(way)
                      or "spawn" not in said(way)]
            right = not silent and "numpy.asarray" in said(ways["export"])
            right = right and (result.T.shape, result.device) == ((50, 30), "cuda:0")
            del result
            gc.collect()
            sgemm_kernels.memory(empty=True)
            os._exit(0 if right and fake.fake_cuda_calls() == calls else 1)
        print(os.waitpid(child, 0)[1], same_bits(np.asarray(result), expected))
    """
    assert printed_over_fake_cuda(code) == "0 True"


def test_a_child_of_a_process_that_only_used_the_cpu(device):
    """The driver is untouched, so the child may use any GPU."""
    script = f"""
        import os
        import numpy as np
        from sgemm_kernels import run, variants
        A = np.ones((50, 50), np.float32)
        assert variants()
        run("smem", A, A, device="cpu")
        child = os.fork()
        if child == 0:
            os._exit(0 if np.all(run("smem", A, A, device={device!r}) == 50) else 1)
        print(os.waitpid(child, 0)[1])
    """
    assert printed_by(script) == "0"


@pytest.mark.parametrize("name", ["naive", "smem", "prefetch"])
def test_ctrl_c_on_the_cpu(name):
    """A product that takes a minute or more stops before it is complete, and the next call
    works."""
    script = f"""
        import os, signal, threading, time
        import numpy as np
        from sgemm_kernels import run
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        n = 10_000
        A = np.ones((n, n), np.float32)
        out = np.full((n, n), np.nan, np.float32)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            run({name!r}, A, A, out=out, device="cpu")
        except KeyboardInterrupt:
            print(np.isnan(out).any())
        small = A[:100, :100]
        assert np.all(run({name!r}, small, small, device="cpu") == 100)
    """
    assert printed_by(script) == "True"


def test_ctrl_c_after_a_call_on_a_gpu(device):
    if device == "cpu":
        pytest.skip("needs a GPU")
    script = f"""
        import os, signal, threading
        import numpy as np
        from sgemm_kernels import run
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
        A = np.ones((6000, 6000), np.float32)
        run("naive", A[:1, :1], A[:1, :1], device={device!r})
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            run("naive", A, A, device={device!r})
            threading.Event().wait(10)
        except KeyboardInterrupt:
            print(run("naive", A[:1, :5], A[:5, :1], device={device!r}).item())
    """
    assert printed_by(script) == "5.0"


def test_a_signal_handler_that_raises_nothing_does_no_harm():
    script = """
        import signal
        import numpy as np
        from sgemm_kernels import run
        rang = []
        signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        A = np.ones((1000, 1000), np.float32)
        while not rang:
            assert np.all(run("smem", A, A, device="cpu") == 1000)
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("undisturbed")
    """
    assert printed_by(script) == "undisturbed"


def test_ctrl_c_while_operands_are_packed():
    """Byte-swapped and strided, so that packing A takes longer than 0.1 s on any machine."""
    script = """
        import signal
        import numpy as np
        from sgemm_kernels import _core, run
        _core._set_usable_cores(1, 1)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        n, down, across = 10_000, 4084, 16388
        A = np.ndarray((n, n), ">f4", np.zeros(n * (down + across), np.uint8), 0, (down, across))
        B = np.ones((n, 1), np.float32)
        out = np.full((n, 1), np.nan, np.float32)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        try:
            run("naive", A, B, out=out, device="cpu")
        except KeyboardInterrupt:
            print(np.isnan(out).any())
    """
    assert printed_by(script) == "True"


def test_a_fault_in_one_of_our_threads_reaches_its_handler():
    """Python's faulthandler prints the stack; a blocked signal would end the process silently."""
    script = """
        import faulthandler
        from sgemm_kernels import run
        from tests.support import unreadable
        faulthandler.enable()
        A = unreadable(64, 64)
        run("naive", A, A, device="cpu")
    """
    process = python(script, SGEMM_KERNELS_THREADS="1")  # of two faults it reports neither
    assert process.returncode == -signal.SIGSEGV
    assert "Fatal Python error: Segmentation fault" in process.stderr


FLOATS = """
    import ctypes, platform
    import numpy as np
    from sgemm_kernels import run
    libm = ctypes.CDLL("libm.so.6")
    tiny = np.full((40, 40), 1e-40, np.float32)
    one = np.eye(40, dtype=np.float32)
    expected = tiny.tobytes()
    environment = (ctypes.c_uint32 * 16)()
    libm.fegetenv(environment)
    if platform.machine() == "x86_64":
        environment[7] |= 0x8040  # MXCSR: flush to zero, denormals are zero
    else:
        environment[0] |= 1 << 24  # FPCR: flush to zero
"""


def test_the_callers_floating_point_environment_changes_no_bit():
    """Flush to zero, as a library linked with -ffast-math sets it: subnormals are kept."""
    script = (
        FLOATS
        + """
    assert libm.fesetenv(environment) == 0
    assert np.float32(1e-40) * np.float32(1) == 0, "it is set"
    product = run("smem", tiny, one, device="cpu").tobytes()
    scaled = run("smem", one, one, alpha=1e-40, device="cpu").tobytes()
    still = np.float32(1e-40) * np.float32(1) == 0
    libm.fesetenv(ctypes.c_void_p(-1))
    assert product == expected
    assert scaled == (one * np.float32(1e-40)).tobytes()
    print(still)
    """
    )
    assert printed_by(script) == "True"


def test_a_floating_point_trap_of_the_caller_does_not_fire():
    if platform.machine() != "x86_64":
        pytest.skip("needs a processor that can trap")
    script = """
        import ctypes
        import numpy as np
        from sgemm_kernels import run
        libm = ctypes.CDLL("libm.so.6")
        huge = np.full((20, 20), 3e38, np.float32)
        libm.feenableexcept(0x3D)
        result = run("smem", huge, huge, alpha=1e308, device="cpu")
        libm.fedisableexcept(0x3D)
        print(np.all(np.isinf(result)))
    """
    assert printed_by(script) == "True"
