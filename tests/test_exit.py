"""The interpreter exits, or is killed, while daemon threads are inside run()."""

import signal

import pytest

from .support import printed_over_fake_cuda, python

CALLS = """
    import os, signal, threading, time
    import numpy as np
    from sgemm_kernels import run

    A = np.ones((1500, 1500), np.float32)
    started = threading.Semaphore(0)

    def call(depth):
        if depth:
            return call(depth - 1)
        started.release()
        while True:
            run("naive", A, A, device="cpu")

    threading.stack_size({stack_bytes})
    for _ in range({threads}):
        threading.Thread(target=call, args=({depth},), daemon=True).start()
    for _ in range({threads}):
        started.acquire()
    time.sleep(0.2)  # several times as long as a call goes without looking for signals
"""


@pytest.mark.parametrize(
    ("threads", "depth", "stack_bytes"), [(1, 0, 0), (5, 0, 0), (8, 0, 0), (1, 500, 256 << 20)]
)
def test_the_interpreter_ends(threads, depth, stack_bytes):
    process = python(CALLS.format(threads=threads, depth=depth, stack_bytes=stack_bytes))
    assert (process.returncode, process.stderr) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(number):
    calls = CALLS.format(threads=5, depth=0, stack_bytes=0)
    process = python(
        calls
        + f"""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
    os.kill(os.getpid(), {number.value})
    time.sleep(60)
    """
    )
    assert process.returncode == -number


@pytest.mark.fake_cuda
@pytest.mark.parametrize("gpus", ["cuda", "cuda:all"])
def test_with_calls_on_a_gpu(gpus):
    code = f"""
        A, _ = uniform(rng, 1000, 1100), print("begun")  # large enough for GPUs to share A.T
        started = threading.Semaphore(0)

        def call():
            started.release()
            while True:
                run("naive", A, A.T, device={gpus!r})

        for _ in range(5):
            threading.Thread(target=call, daemon=True).start()
        for _ in range(5):
            started.acquire()
        threading.Event().wait(0.2)
    """
    assert printed_over_fake_cuda(code) == "begun"
