"""The calling thread computes a small product on the CPU device and keeps its own settings."""

import numpy as np
import pytest

from sgemm_kernels import _core, run

from .support import printed_by, same_bits, uniform

# A new thread maps memory for its stack. glibc must not reuse the stack of an
# earlier one.
NO_THREADS = """
    from pathlib import Path
    import numpy as np
    from sgemm_kernels import _core, run
    from tests.support import deep

    def product(name, M, K):
        A, B = np.ones((M, K), np.float32), np.ones((K, M), np.float32)
        try:
            return bool((run(name, A, B, device="cpu") == K).all())
        except MemoryError:
            return "no thread"

    def most_mapped():
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmPeak:"):
                return int(line.split()[1]) << 10

    NAMES = {names!r}
    for name in NAMES:
        warm = product(name, 1, 1), product(name, 12, deep(name, 40))
        assert warm == (True, True), name
    mapped = most_mapped()
    _core._launched(True)
    for name in NAMES:
        found = product(name, 1, 1), product(name, 12, deep(name, 40))
        assert found == (True, True), (name, found)
        print(name in _core._launched(True) or name)
    # A new thread's stack takes 8 MB.
    assert most_mapped() - mapped < 4 << 20
    assert product("smem", 500, 500) and most_mapped() - mapped > 4 << 20
"""


def test_starts_no_thread(device, variants_on):
    if device != "cpu":
        pytest.skip("GPUs start none")
    printed = printed_by(
        NO_THREADS.format(names=variants_on[device]),
        GLIBC_TUNABLES="glibc.pthread.stack_cache_size=0",
        OPENBLAS_NUM_THREADS="1",
    )
    assert set(printed.split()) == {"True", "simt", "auto", "invariant"}


def test_a_caller_may_have_a_small_stack(device, variants_on):
    code = f"""
        import threading
        import numpy as np
        from sgemm_kernels import run
        from tests.support import deep

        right = []

        def call(name):
            K = deep(name, 40)
            A, B = np.ones((40, K), np.float32), np.ones((K, 40), np.float32)
            right.append((run(name, A, B, device={device!r}) == K).all())

        threading.stack_size(256 << 10)
        for name in {variants_on[device]!r}:
            threads = [threading.Thread(target=call, args=(name,)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        print(sum(right))
    """
    assert printed_by(code) == str(4 * len(variants_on[device]))


def test_the_callers_rounding_is_neither_used_nor_changed():
    """0x800 rounds upwards on x86-64; elsewhere fesetround refuses it."""
    code = """
        import ctypes
        import numpy as np
        from sgemm_kernels import run

        rng = np.random.default_rng(5)
        A, B = (rng.uniform(-1, 1, (20, 20)).astype(np.float32) for _ in range(2))
        nearest = run("tile2d", A, B, device="cpu")
        libm = ctypes.CDLL("libm.so.6")
        refused = libm.fesetround(0x800)
        before = libm.fegetround()
        upward = run("tile2d", A, B, device="cpu")
        after = libm.fegetround()
        libm.fesetround(0)
        print(before == after, refused or before == 0x800, (nearest == upward).all())
    """
    assert printed_by(code) == "True True True"


def test_children_may_fork_during_small_products():
    code = """
        import os, threading
        import numpy as np
        from sgemm_kernels import run

        A, stop = np.ones((20, 20), np.float32), threading.Event()

        def call():
            while not stop.is_set():
                run("smem", A, A, device="cpu")

        threads = [threading.Thread(target=call) for _ in range(3)]
        for thread in threads:
            thread.start()
        ends = set()
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(0 if (run("smem", A, A, device="cpu") == 20).all() else 1)
            ends.add(os.waitpid(child, 0)[1])
        stop.set()
        for thread in threads:
            thread.join()
        print(ends)
    """
    assert printed_by(code) == "{0}"


def test_signals_wait_until_the_product_is_done():
    """A signal sent meanwhile is handled afterwards, and none stays blocked."""
    code = """
        import signal
        import numpy as np
        from sgemm_kernels import run

        A, ticks = np.ones((30, 30), np.float32), []
        signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
        while len(ticks) < 50:
            assert (run("smem", A, A, device="cpu") == 30).all()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    """
    assert printed_by(code) == "set()"


@pytest.mark.parametrize(
    ("name", "tiled"),
    [("auto", "tile2d"), ("simt", "tile2d"), ("mma", "splitk"), ("waves", "splitk")],
)
@pytest.mark.parametrize("size", [1, 5, 40])
@pytest.mark.parametrize("K", [1, 37, 100, 127])
def test_coalesced_instead_of_large_tiles_is_bit_identical(rng, name, tiled, size, K):
    A, B, C = uniform(rng, size, K), uniform(rng, K, size), uniform(rng, size, size)
    for beta in (0, 0.5):
        found, expected = (
            run(each, A, B, C=C, alpha=0.3, beta=beta, device="cpu") for each in (name, tiled)
        )
        assert same_bits(found, expected)


def test_a_batch_of_small_products_runs_the_kernel_of_one():
    """The batch's size would choose whole tiles, mostly empty here: five times as slow."""
    batch = np.ones((400, 16, 16), np.float32)
    launched = []
    for operand in (batch[0], batch):
        _core._launched(True)
        run("auto", operand, operand, device="cpu")
        launched.append(_core._launched(False))
    assert launched[0] == launched[1] == {"per_element"}
