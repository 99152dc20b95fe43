"""The host's side of a GPU, over a CUDA runtime in host memory: tests/fake_cuda/."""

import textwrap

import pytest

from .support import (
    FAKE_PRELUDE,
    OVER_HIP,
    ending,
    fake_cuda,
    printed_over_fake_cuda,
    python,
)


@pytest.mark.fake_cuda
def test_every_rung_has_the_bits_of_the_cpu():
    code = """
        A, B, C = uniform(rng, 70, 40), uniform(rng, 40, 90), uniform(rng, 70, 90)
        for variant in sgemm_kernels.variants():
            if variant.devices == ("cpu", "cuda"):
                for device in ("cuda:0", "cuda:1"):
                    args = dict(C=C, alpha=0.3, beta=0.7)
                    assert same_bits(run(variant.name, A, B, device=device, **args),
                                     run(variant.name, A, B, device="cpu", **args)), variant.name
        print("same")
    """
    assert printed_over_fake_cuda(code) == "same"


@pytest.mark.fake_cuda
def test_operands_of_every_layout_are_gathered_in_chunks():
    """Rows around the length of a cache line, and rows of many cache lines."""
    code = """
        from tests.support import LAYOUTS
        for K in (1, 15, 16, 17, 33, 300):
            A, B, C = uniform(rng, 2600, K), uniform(rng, K, 41), uniform(rng, 2600, 41)
            expected = run("tile2d", A, B, C=C, beta=1, device="cpu")
            for name, layout in LAYOUTS.items():
                args = [layout.place(values).matrix for values in (A, B, C)]
                result = run("tile2d", *args[:2], C=args[2], beta=1, device="cuda:0")
                assert same_bits(result, expected), (K, name)
        print("same")
    """
    assert printed_over_fake_cuda(code) == "same"


@pytest.mark.fake_cuda
def test_workers_sleep_after_a_call():
    code = """
        import pathlib, time
        A = uniform(rng, 600, 600)
        run("tile2d", A, A, device="cuda:0")
        me, tasks = threading.get_native_id(), pathlib.Path("/proc/self/task")
        def awake():
            states = {t.name: (t / "stat").read_text().rpartition(")")[2].split()[0]
                      for t in tasks.iterdir()}
            assert len(states) > 1
            return [name for name, state in states.items() if state != "S" and name != str(me)]
        while awake():  # until this test's time is over
            time.sleep(0.01)
        print(True)
    """
    assert printed_over_fake_cuda(code) == "True"


@pytest.mark.fake_cuda
def test_a_first_call_ends_no_capture_of_another_thread():
    """The call creates streams and events, loads kernels and opens cuBLAS."""
    code = """
        from tests.on_fake_gpu import captured_elsewhere
        sgemm_kernels._core._open_cublas(sgemm_kernels._core.__file__)
        names = {variant.name for variant in sgemm_kernels.variants()}
        reference = "rocblas" if "rocblas" in names else "cublas"
        A = uniform(rng, 20, 20)
        with captured_elsewhere():
            for name in (reference, "vec4"):
                run(name, A, A, device="cuda")
        print("whole")
    """
    assert printed_over_fake_cuda(code) == "whole"


@pytest.mark.fake_cuda
@pytest.mark.skipif(OVER_HIP, reason="PTX is NVIDIA's")
def test_ptx_of_an_older_generation_is_not_run():
    """The fake build has code for sm_90 and PTX for 8.0, in which kernels for 9.0 are empty."""
    code = "gpu = sgemm_kernels.devices()[0]; print(gpu.usable, gpu.problem)"
    for major in (8, 9):
        assert printed_over_fake_cuda(code, FAKE_CUDA_MAJOR=str(major)) == "True None"
    assert printed_over_fake_cuda(code, FAKE_CUDA_MAJOR="10") == (
        "False this build has no code for the GPU: it has compute capability 10.0, and the build "
        "has code for sm_90 compute_80; build with SGEMM_KERNELS_ARCHS=100"
    )


@pytest.mark.fake_cuda
def test_device_memory_cannot_be_read_by_the_host():
    """Tests the fake runtime: a stray access ends the process."""
    code = """
        import ctypes
        from sgemm_kernels import _core
        fake = ctypes.CDLL(_core.__file__)
        fake.fake_cuda_malloc.restype = ctypes.c_void_p
        ctypes.string_at(fake.fake_cuda_malloc(0, 4), 4)
    """
    assert python(code, fake_cuda()).returncode == -11


REFUSED = {
    "addresses for device memory": """
        fake.fake_cuda_malloc.argtypes = (ctypes.c_int, ctypes.c_size_t)
        fake.fake_cuda_set_memory(0, 1 << 60)
        fake.fake_cuda_malloc(0, 1 << 50)
    """,
    "a thread that stands for a stream": """
        from tests.exporters import core
        stream, is_open = core.library_stream(0), ctypes.c_int(1)
        core.library_hold(stream, ctypes.addressof(is_open))
        core.library_synchronize(stream)  # its thread has begun, which takes memory as well
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (1 << 20, resource.RLIM_INFINITY))
        while True:
            core.library_stream(0)
    """,
}


@pytest.mark.fake_cuda
@pytest.mark.parametrize("what", REFUSED)
def test_fatal_errors_of_the_fake_runtime_are_named(what):
    process = python(FAKE_PRELUDE + textwrap.dedent(REFUSED[what]), fake_cuda())
    assert ending(process).startswith("ended by SIGABRT\n"), ending(process)
    assert f"fake CUDA runtime: {what}: " in process.stderr


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import sys; print('here'); sys.exit(3)", "exit status 3\nhere\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended by SIGSEGV\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "memory is short\n"),
    ],
)
def test_ending_says_how_a_process_ended(code, says):
    assert says in ending(python(code))


@pytest.mark.fake_cuda
@pytest.mark.parametrize("code", [2, 700, 999])
def test_a_call_can_be_made_to_fail(code):
    script = f"""
        A = uniform(rng, 5, 5)
        for call in range(1, 100):
            fake.fake_cuda_fail(call, {code})
            try:
                run("naive", A, A, device="cuda")
            except DeviceError as error:
                print(bool(fake.fake_cuda_failed_call()))
                break
    """
    assert printed_over_fake_cuda(script) == "True"
