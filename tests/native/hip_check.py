"""Builds the package for AMD GPUs and tests it without one, for `make thorough GROUP=hip`.

Everything compiles for all architectures, with warnings as errors. No kernel may spill registers
or use more shared memory (LDS) than a block may have. The extension is loaded with HIP's own
runtime. Then the host code is tested over the fake runtime of tests/fake_cuda under HIP's names,
with kernels on the CPU device. SGEMM_KERNELS_HIP selects another hipcc than the one on PATH; if
there is none, this script installs it as root on Debian and Ubuntu.
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from build_backend import compiling  # noqa: E402
from build_backend.toolkit import BuildError, HipToolkit  # noqa: E402

PLANTED = Path("tests/native/spilling.cu")
MOST_LDS_BYTES = 65536  # per block
# prefetch asks for two blocks, which allow 128 registers. On gfx900 and gfx906 it is a few short.
# With one block it would not spill, but be slower on NVIDIA's GPUs.
KEPT_BYTES = {"prefetch": 16}

# The tests that run over the fake runtime.
SUITES = (
    *("tests/on_fake_gpu.py", "tests/on_fake_exchange.py", "tests/on_fake_hip.py"),
    *("tests/on_fake_contiguous.py", "tests/test_on_gpu.py"),
    *("tests/test_fake_cuda.py", "tests/test_cuda_failures.py", "tests/test_memory.py"),
    *("tests/test_devices.py", "tests/test_arguments.py", "tests/test_exit.py"),
)
NOT_OF_A_FAKE = "tests/test_devices.py::test_figures_of_a_gpu"

_ENTRY = re.compile(r"remark: Function Name: (\S+)")
_FIGURE = re.compile(r"remark: +(ScratchSize|LDS Size)[^:]*: (\d+)")


def reported(log: str) -> list[tuple[str, dict[str, int]]]:
    """The resources that each kernel uses on each architecture, as hipcc reports for one source."""
    found: list[tuple[str, dict[str, int]]] = []
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            found.append((entry[1], {}))
        elif figure := _FIGURE.search(line):
            found[-1][1][figure[1]] = int(figure[2])
    return found


def faults(log: str) -> list[str]:
    """Kernels that spill, keep an array in memory, or use too much shared memory.

    Spills to registers of another kind, which gfx908 has for matrix instructions, do not count.
    """
    found = []
    for name, figures in reported(log):
        allowed = max((b for rung, b in KEPT_BYTES.items() if rung in name), default=0)
        if (scratch := figures["ScratchSize"]) > allowed:
            found.append(f"{name} keeps {scratch} bytes of each thread in memory")
        if (lds := figures["LDS Size"]) > MOST_LDS_BYTES:
            found.append(f"{name} takes {lds} bytes of shared memory")
    return found


def install() -> None:
    """Installs hipcc if it is missing and can be installed. Otherwise the build error says how."""
    if os.environ.get("SGEMM_KERNELS_HIP") or shutil.which("hipcc"):
        return
    if os.geteuid() == 0 and shutil.which("apt-get"):
        print("installing hipcc", flush=True)
        quietly = {"stdout": subprocess.DEVNULL, "env": {**os.environ, "LC_ALL": "C"}}
        subprocess.run(["apt-get", "update"], **quietly)
        subprocess.run(["apt-get", "install", "--yes", "hipcc", "libamdhip64-dev"], **quietly)


def check_kernels(environ: dict[str, str], toolkit: HipToolkit) -> list[str]:
    """Compiles every source that hipcc compiles; returns the faults found."""
    jobs = [job for job in compiling.plan(ROOT, environ, toolkit) if job.log]
    planted = replace(
        jobs[-1],
        source=PLANTED,
        target=Path("build/check/hip/spilling.o"),
        log=Path("build/check/hip/spilling.txt"),
    )
    compiling.compile_stale(ROOT, [*jobs, planted])
    logs = {job.source: (ROOT / str(job.log)).read_text() for job in (*jobs, planted)}
    count = len(toolkit.architectures)
    if len(faults(logs.pop(PLANTED))) != count:
        return [f"what {PLANTED} keeps in memory was not found on every architecture"]
    entries = [entry for log in logs.values() for entry in reported(log)]
    names = {name for name, _ in entries}
    if len(entries) != count * len(names):
        return ["hipcc reported on other architectures than it compiled for"]
    most = max(figures["LDS Size"] for _, figures in entries)
    found = [f"{source}: {fault}" for source, log in logs.items() for fault in faults(log)]
    print(
        f"{len(names)} kernels on {' '.join(toolkit.architectures)}: {len(found)} spill or take "
        f"too much; the most shared memory is {most} bytes",
        flush=True,
    )
    return found


def check_host(environ: dict[str, str]) -> int:
    """Builds both libraries, loads one, and tests with the other. Returns the tests' exit
    status."""
    library = compiling.build_core(ROOT, environ)
    package = compiling.lay_out_package(ROOT, ROOT / "build/check/hip")
    shutil.copy(library, package / library.name)
    fake = compiling.build_fake(ROOT, environ)

    def run(package: Path, *arguments: str) -> int:
        path = os.pathsep.join((str(package), str(ROOT)))
        command = [sys.executable, "-P", "-m", *arguments]
        return subprocess.run(command, env={**environ, "PYTHONPATH": path}, cwd=ROOT).returncode

    status = run(package.parent, "sgemm_kernels", "info")
    options = ("-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile")
    return status or run(fake, "pytest", *options, *SUITES, f"--deselect={NOT_OF_A_FAKE}")


def main() -> str | int:
    """Runs all checks; returns the faults, or the tests' exit status."""
    install()
    environ = {
        **os.environ,
        "SGEMM_KERNELS_HIP": os.environ.get("SGEMM_KERNELS_HIP") or "1",
        "SGEMM_KERNELS_WERROR": "1",
        "SGEMM_KERNELS_CUDA": "",
        "SGEMM_KERNELS_ARCHS": "",
    }
    try:
        toolkit = compiling.find_toolkit(environ)
        assert isinstance(toolkit, HipToolkit)
        found = check_kernels(environ, toolkit)
        return "make thorough GROUP=hip: " + "\n".join(found) if found else check_host(environ)
    except BuildError as error:
        return f"make thorough GROUP=hip: {error}"


if __name__ == "__main__":
    sys.exit(main())
