"""Runs other projects' tests with every float32 product in these kernels.

`make thorough GROUP=blas` calls it.

On the CPU device, under `sgemm-kernels preload`:

- the testers of the reference BLAS and LAPACK, from Debian's packages libblas-test and
  liblapack-test, which are unpacked in build/blas-check, not installed. Without apt-get, they are
  left out.
- Octave's own tests, if octave-cli is installed
- the tests of products in NumPy, SciPy and scikit-learn, and products in functions of numba.
  `make thorough GROUP=blas` installs these packages in .venv-blas.

With the argument --all, LAPACK's testers for eigenvalues and least squares, more of Octave's files,
and all of SciPy's linalg tests run too.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

NATIVE = Path(__file__).resolve().parent
ROOT = NATIVE.parents[1]
WORK = ROOT / "build/blas-check"
PYTHON = ROOT / ".venv-blas/bin/python"
PACKAGES = (
    "libblas-test",
    "liblapack-test",
    "libtmglib3",
    "liblapack3",
    "libblas3",
    "libgfortran5",
)
LIBRARIES = ("lapack", "blas", "")  # folders of Debian's packages, below usr/lib/ARCHITECTURE
ALL = "--all" in sys.argv[1:]

# LAPACK's tester of RFP storage: with every BLAS but the reference, one of 7776 tests of STFSM has
# a ratio above the threshold.
KNOWN = re.compile(r"SRFP|STFSM")

PYTHON_TESTS = {
    "numpy": (
        "numpy._core.tests.test_multiarray",
        "numpy.linalg.tests.test_linalg",
        "-k(matmul or dot or inner or linalg) and not huge",
    ),
    "scipy": (
        "scipy.linalg.tests.test_blas",
        *(["scipy.linalg"] if ALL else ["scipy.linalg.tests.test_matmul_toeplitz"]),
    ),
    "scikit-learn": (
        "sklearn.decomposition.tests.test_pca",
        "sklearn.cluster.tests.test_k_means",
        "sklearn.neighbors.tests.test_neighbors",
        "-kfloat32",
    ),
    "numba": (
        str(NATIVE / "numba_products.py"),
        "--noconftest",
        *(["numba.tests.test_linalg", "-kproducts or TestProduct"] if ALL else []),
    ),
}


def environment(log: Path) -> dict[str, str]:
    """This process's environment with the preload, and with its log in a file."""
    config = [sys.executable, "-m", "sgemm_kernels", "config", "--blas"]
    library = subprocess.run(config, cwd=ROOT, capture_output=True, text=True, check=True)
    return {
        **os.environ,
        "LD_PRELOAD": library.stdout.strip(),
        "SGEMM_KERNELS_BLAS_DEVICE": "cpu",
        "SGEMM_KERNELS_BLAS_VARIANT": "vec4",
        "SGEMM_KERNELS_BLAS_LOG": "stats",
        "SGEMM_KERNELS_BLAS_LOGFILE": str(log),
        "SKLEARN_RUN_FLOAT32_TESTS": "1",
    }


def calls_in(log: Path) -> int:
    """The calls that all processes computed here."""
    text = log.read_text() if log.is_file() else ""
    return sum(int(number) for number in re.findall(r"(\d+) calls computed here \(", text))


def debian() -> Path | None:
    """Unpacks Debian's testers and returns their folder; None without apt-get."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-deb"):
        return None
    debs, root = WORK / "debs", WORK / "debian"
    debs.mkdir(parents=True, exist_ok=True)
    if not list(debs.glob("*.deb")):
        quietly = {"cwd": debs, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        if os.geteuid() == 0:
            subprocess.run(["apt-get", "update"], **quietly)
        subprocess.run(["apt-get", "download", *PACKAGES], **quietly)
    for deb in debs.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
    return next((path.parent for path in root.glob("usr/lib/*/blas/xblat3s")), None)


def run_tester(program: str, data: str, folder: Path, log: Path) -> list[str]:
    """Runs a tester in WORK. Returns the lines that tell of a failure."""
    lib = folder.parent
    searched = ":".join(str(lib / each) for each in LIBRARIES)
    done = subprocess.run(
        [lib / program],
        cwd=WORK,
        env={**environment(log), "LD_LIBRARY_PATH": searched},
        stdin=(lib / data).open(),
        capture_output=True,
        text=True,
        check=False,
    )
    printed = done.stdout
    if program.endswith("xblat3s"):
        printed += (WORK / "sblat3.out").read_text()
    lines = [line.strip() for line in printed.splitlines()]
    failed = [line for line in lines if re.search(r"FAIL|failed to pass|FATAL", line)]
    passed = [line for line in lines if re.search(r"PASSED|passed the (threshold|tests)", line)]
    print(f"{data}: {len(passed)} lines passed, {len(failed)} failed", flush=True)
    if done.returncode or not passed:
        failed.append(f"{program} ended with status {done.returncode}: {done.stderr[-500:]}")
    return [line for line in failed if not KNOWN.search(line)]


def check_debian(log: Path) -> list[str]:
    folder = debian()
    if folder is None:
        print("no testers of BLAS and LAPACK: they need apt-get of Debian or Ubuntu")
        return []
    testers = [
        ("blas/xblat3s", "blas/sblat3.in"),
        ("blas/xscblat3", "blas/sin3"),
        ("lapack/xlintsts", "lapack/stest.in"),
        ("lapack/xlintstrfs", "lapack/stest_rfp.in"),
    ]
    if ALL:
        names = ["nep", "sep", "se2", "svd", "sec", "sed", "sgg", "sgd", "ssb", "ssg"]
        names += ["sbb", "glm", "gqr", "gsv", "csd", "lse"]
        testers += [("lapack/xeigtsts", f"lapack/{name}.in") for name in names]
    return [line for tester in testers for line in run_tester(*tester, folder, log)]


def octave_files(environ: dict[str, str]) -> dict[str, tuple[int, int]]:
    """How many tests passed, and of how many, for each of Octave's files."""
    command = ["octave-cli", "--no-init-file", NATIVE / "octave_tests.m", *sys.argv[1:]]
    done = subprocess.run(
        command, cwd=WORK, env=environ, capture_output=True, text=True, check=False
    )
    found = re.findall(r"^(/.+): (\d+) of (\d+) passed$", done.stdout, re.MULTILINE)
    return {file: (int(passed), int(tests)) for file, passed, tests in found}


def check_octave(log: Path) -> list[str]:
    """Some of Octave's tests fail for known bugs: as many must pass as without the preload."""
    if not shutil.which("octave-cli"):
        print("no tests of Octave: octave-cli is not installed (Debian and Ubuntu: octave)")
        return []
    own, ours = octave_files(dict(os.environ)), octave_files(environment(log))
    passed, tests = (sum(each) for each in zip(*ours.values(), strict=True)) if ours else (0, 0)
    print(f"octave: {passed} of {tests} tests in {len(ours)} files passed", flush=True)
    failed = [
        f"octave: {file}: {ours.get(file, ('no',))[0]} passed, {own[file][0]} without the preload"
        for file in own
        if ours.get(file) != own[file]
    ]
    return failed if own else ["octave: no test ran"]


def check_python(log: Path) -> list[str]:
    """Runs the tests of Python packages, with their usual threads. Returns the failures."""
    failed = []
    (WORK / "pytest.ini").write_text("[pytest]\n")  # not this project's settings
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "-c", "pytest.ini", "--pyargs"]
    for name, tests in PYTHON_TESTS.items():
        command = [PYTHON, "-m", "pytest", *options, *tests]
        done = subprocess.run(
            command, cwd=WORK, env=environment(log), capture_output=True, text=True, check=False
        )
        print(f"{name}: {done.stdout.strip().splitlines()[-1]}", flush=True)
        if done.returncode:
            failed.append(f"{name}: {done.stdout[-3000:]}{done.stderr[-1000:]}")
    return failed


def main() -> str | None:
    """Returns a message about failures, or None."""
    WORK.mkdir(parents=True, exist_ok=True)
    failed = []
    checks = {"testers": check_debian, "octave": check_octave, "packages": check_python}
    for name, check in checks.items():
        log = WORK / f"{name}.log"
        log.unlink(missing_ok=True)
        failed += check(log)
        print(f"{calls_in(log)} products computed here by the {name}", flush=True)
        if log.is_file() and not calls_in(log):
            failed.append(f"{name}: no product was computed here")
    return "\n".join(failed) or None


if __name__ == "__main__":
    sys.exit(main())
