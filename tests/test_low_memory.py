"""Too little memory for the CPU device's threads raises MemoryError and never ends the process."""

import pytest

from .support import printed_by

# A forked child for each amount, so that all begin alike. Its exit status says how it ended.
CHILDREN = """
    import os, resource
    import numpy as np
    from sgemm_kernels import run

    A = np.ones((200, 200), np.float32)
    out = np.empty_like(A)

    def limit(extra):
        mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + extra,) * 2)

    def product():
        try:
            run("smem", A, A, out=out, device="cpu")
        except MemoryError:
            return 12
        return 10 if np.all(out == 200) else 11

    words = {{10: "right", 11: "wrong", 12: "MemoryError"}}
    ends = set()
    for amount in range({amounts}):
        child = os.fork()
        if child == 0:
            try: # Python itself may find no memory for a call
                {prepare}
                os._exit(product())
            except MemoryError:
                os._exit(12)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        ends.add(words.get(status, f"status {{status}}"))
    print(*sorted(ends), sep=", ")
"""


@pytest.mark.parametrize("kept", [False, True], ids=["at first", "with stacks kept"])
def test_less_memory_than_a_block_needs(kept):
    """All memory is used, then some blocks of 8 kB are freed: first less, then more than shared
    memory needs."""
    prepare = f"""
                full = [None] * 100_000
                if {kept}:
                    product()
                limit(0 if {kept} else 100 << 20)
                try:
                    for filled in range(len(full)):
                        full[filled] = bytearray(8100)
                except MemoryError:
                    pass
                for index in range(filled - 2 * amount, filled):
                    full[index] = None
    """
    code = CHILDREN.format(amounts=15, prepare=prepare.strip())
    ends = printed_by(code, MALLOC_ARENA_MAX="1", OPENBLAS_NUM_THREADS="1")
    assert set(ends.split(", ")) <= {"right", "MemoryError"}
    assert "MemoryError" in ends


def test_any_amount_of_address_space():
    """The stack of a thread is the first thing that does not fit."""
    code = CHILDREN.format(amounts=30, prepare="limit(amount << 24)")
    ends = printed_by(code, OPENBLAS_NUM_THREADS="1", SGEMM_KERNELS_THREADS="2")
    assert ends == "MemoryError, right"


def test_streamk_does_not_split_if_memory_is_short():
    """32 shares of one tile would take 8 MiB."""
    code = """
        import resource
        import numpy as np
        from sgemm_kernels import run

        rng = np.random.default_rng(7)
        A, B = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((5, 16384), (16384, 7)))
        in_order = run("naive", A, B, device="cpu")
        divided, whole = np.empty((2, 5, 7), np.float32)
        run("streamk", A, B, out=divided, device="cpu")
        mapped = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + (4 << 20),) * 2)
        run("streamk", A, B, out=whole, device="cpu")
        print((divided == in_order).all(), (whole == in_order).all())
    """
    # Freed memory returns to the system at once. With more threads, the second product might start
    # fewer of them and use the memory of their stacks.
    environ = {"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    environ["SGEMM_KERNELS_THREADS"] = "2"
    environ["SGEMM_KERNELS_CPU_MULTIPROCESSORS"] = "132"
    assert printed_by(code, OPENBLAS_NUM_THREADS="1", **environ) == "False True"
