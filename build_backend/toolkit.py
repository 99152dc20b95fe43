"""The builder's decisions: which CUDA toolkit or HIP, which architectures, which hash.

Each is a function of what it is given, so that tests can show every answer. Nothing here compiles.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

INDEX = "index"
NATIVE = "native"
ALL = "all"
INDEX_REQUIREMENT = "cuda-toolkit[nvcc,crt,nvvm,cudart,cccl]==13.0.*"
NUMPY_REQUIREMENT = "numpy>=2"
USUAL_PLACE = Path("/usr/local/cuda")
USUAL_HIP = Path("/opt/rocm")
HIP_ARCHITECTURES = ("gfx900", "gfx906", "gfx908", "gfx90a", "gfx1030")
OLDEST_TOOLKIT = 12
OLDEST_ARCHITECTURE = 75
SOURCE_SUFFIXES = {".c", ".cpp", ".cu", ".h"}

_OTHER_WAYS = (
    "SGEMM_KERNELS_CUDA=index builds with nvcc from the package index, "
    "SGEMM_KERNELS_CUDA=0 for the CPU alone"
)


class BuildError(Exception):
    """The build cannot go on; the message says what is missing and how to get it."""


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit that can build this package."""

    nvcc: Path
    cudart: Path  # the static library
    version: str  # nvcc's, as "13.0.88"
    architectures: tuple[int, ...]  # what to compile for, ascending; PTX for the last


@dataclass(frozen=True)
class HipToolkit:
    """HIP, which builds this package for AMD GPUs."""

    hipcc: Path
    library: Path  # the runtime, shared
    version: str  # as "5.2.21153"
    architectures: tuple[str, ...]  # what to compile for


def choose(environ: Mapping[str, str], usual_place: Path = USUAL_PLACE) -> Path | str | None:
    """The root of the toolkit that SGEMM_KERNELS_CUDA asks for, or INDEX, or None: the CPU alone.

    By default ("auto") CUDA_HOME, then nvcc on PATH, then the usual place, then INDEX; never None.
    Raises BuildError for a place without nvcc and for a value that means nothing.
    """
    wish = environ.get("SGEMM_KERNELS_CUDA") or "auto"
    if wish == "0":
        return None
    if wish == INDEX:
        return INDEX
    if "/" in wish:
        return _checked(Path(wish), f"SGEMM_KERNELS_CUDA={wish}")
    if wish != "auto":
        raise BuildError(
            f"SGEMM_KERNELS_CUDA={wish} is not understood: it can be the path of a CUDA toolkit, "
            "such as /usr/local/cuda, or 'index', '0' or 'auto'"
        )
    if home := environ.get("CUDA_HOME"):
        return _checked(Path(home), f"CUDA_HOME={home}")
    if nvcc := shutil.which("nvcc", path=environ.get("PATH", "")):
        return Path(nvcc).resolve().parent.parent
    if _has_nvcc(usual_place):
        return usual_place
    return INDEX


def choose_hip(
    environ: Mapping[str, str], usual_place: Path = USUAL_HIP, usual_cuda: Path = USUAL_PLACE
) -> Path | None:
    """The hipcc to build with for AMD GPUs; None where it is not that for which is built.

    SGEMM_KERNELS_HIP names its path or that of its root, or is "1": hipcc on PATH, or in the usual
    place. By default ("auto") likewise, where SGEMM_KERNELS_CUDA leaves the choice open and there
    is no CUDA toolkit. Raises BuildError where it is asked for and missing, and for a value that
    means nothing.
    """
    wish = environ.get("SGEMM_KERNELS_HIP") or "auto"
    cuda = environ.get("SGEMM_KERNELS_CUDA") or "auto"
    if wish == "0":
        return None
    if wish != "auto" and cuda not in ("auto", "0"):
        raise BuildError(
            f"SGEMM_KERNELS_HIP={wish} and SGEMM_KERNELS_CUDA={cuda}: a build is for the GPUs of "
            "one maker. Leave one of them out"
        )
    if "/" in wish:
        for hipcc in (Path(wish), Path(wish) / "bin/hipcc"):
            if hipcc.is_file():
                return hipcc
        raise BuildError(f"SGEMM_KERNELS_HIP={wish} names no hipcc, nor a root that has bin/hipcc")
    if wish not in ("auto", "1"):
        raise BuildError(
            f"SGEMM_KERNELS_HIP={wish} is not understood: it can be '1', the path of hipcc or of "
            "its root, such as /opt/rocm, '0' or 'auto'"
        )
    if wish == "auto" and (cuda != "auto" or choose(environ, usual_cuda) != INDEX):
        return None
    found = shutil.which("hipcc", path=environ.get("PATH", ""))
    usual = usual_place / "bin/hipcc"
    hipcc = Path(found) if found else usual if usual.is_file() else None
    if not hipcc and wish == "1":
        raise BuildError(
            f"SGEMM_KERNELS_HIP=1 asks for hipcc, which is neither on PATH nor in {usual_place}. "
            "Install it (Debian and Ubuntu: apt install hipcc), or name its path"
        )
    return hipcc


def build_requirements(environ: Mapping[str, str]) -> list[str]:
    """What the build that environ asks for needs from the package index."""
    index = not choose_hip(environ) and choose(environ) == INDEX
    return [NUMPY_REQUIREMENT, *([INDEX_REQUIREMENT] if index else [])]


def index_root(search_path: Iterable[str]) -> Path:
    """Where the toolkit's packages lie on a Python search path."""
    for entry in search_path:
        root = Path(entry) / "nvidia/cu13"
        if _has_nvcc(root):
            return root
    raise BuildError(
        "no CUDA toolkit was found on this machine, nor in this Python environment. `pip install .`"
        " gets one by itself. Without pip's isolation: pip install "
        f"'{INDEX_REQUIREMENT}'; or name a toolkit's path in SGEMM_KERNELS_CUDA; or build for the "
        "CPU alone with SGEMM_KERNELS_CUDA=0"
    )


def inspect(root: Path, wanted_architectures: str = "") -> Toolkit:
    """Asks the toolkit at root what it is, and settles what to compile for.

    That is what is wanted, or else what the GPUs of this machine run, or where there are none all
    that the toolkit knows.
    """
    nvcc = root / "bin/nvcc"
    version = parse_version(_ask(nvcc, "--version"))
    if int(version.split(".")[0]) < OLDEST_TOOLKIT:
        raise BuildError(
            f"the CUDA toolkit at {root} is {version}, and {OLDEST_TOOLKIT}.0 or newer is needed. "
            f"Name a newer one's path in SGEMM_KERNELS_CUDA; or {_OTHER_WAYS}"
        )
    known = parse_architectures(_ask(nvcc, "--list-gpu-code"))
    wanted = wanted_architectures.strip()
    present = gpus() if wanted in ("", NATIVE) else ()
    if wanted == NATIVE or (not wanted and any(gpu >= known[0] for gpu in present)):
        chosen = native_architectures(known, present)
    else:
        chosen = choose_architectures(known, wanted)
    return Toolkit(nvcc, find_cudart(root), version, chosen)


def inspect_hip(hipcc: Path, wanted_architectures: str = "") -> HipToolkit:
    """Asks hipcc what it is, and settles what to compile for."""
    text = _ask(hipcc, "--version")
    version = re.search(r"HIP version: (\d+\.\d+\.\d+)", text)
    if not version:
        raise BuildError(f"hipcc --version gives no version of HIP: {text.strip()!r}")
    wanted = wanted_architectures.split()
    names = HIP_ARCHITECTURES if wanted in ([], [ALL]) else tuple(wanted)
    if strange := [name for name in names if not re.fullmatch(r"gfx[0-9a-f]+", name)]:
        raise BuildError(
            f"SGEMM_KERNELS_ARCHS='{wanted_architectures}': {' '.join(strange)} is no architecture "
            f"of AMD's, as in '{' '.join(HIP_ARCHITECTURES)}'"
        )
    root = hipcc.absolute().parent.parent
    for library in (*root.glob("lib*/libamdhip64.so"), *root.glob("lib/*/libamdhip64.so")):
        return HipToolkit(hipcc, library, version[1], names)
    raise BuildError(
        f"there is {hipcc}, but no libamdhip64.so under {root}/lib. Install the package of HIP's "
        "runtime (Debian and Ubuntu: libamdhip64-dev)"
    )


def find_cudart(root: Path) -> Path:
    """The static CUDA runtime of the toolkit at root.

    It lies in lib64 in NVIDIA's own layout, in lib in the package index's, in targets/*/lib in
    conda's, and in lib/* in Debian's.
    """
    for folder in ("lib64", "lib", "targets/*/lib", "lib/*"):
        for library in sorted(root.glob(f"{folder}/libcudart_static.a")):
            return library
    raise BuildError(
        f"the CUDA toolkit at {root} has nvcc but no libcudart_static.a. Install its package of "
        f"runtime headers and libraries (cuda-cudart-dev); or {_OTHER_WAYS}"
    )


def parse_version(text: str) -> str:
    """The release in `nvcc --version`, as "13.0.88"."""
    if match := re.search(r"\bV(\d+\.\d+\.\d+)", text):
        return match[1]
    raise BuildError(f"nvcc --version gives no version: {text.strip()!r}. {_OTHER_WAYS}")


def parse_architectures(text: str) -> list[int]:
    """The architectures in `nvcc --list-gpu-code`, ascending from the oldest that is supported.

    Plain ones only: sm_90a, sm_100f and their like are bound to one chip or family.
    """
    found = {int(number) for number in re.findall(r"^sm_(\d+)$", text, re.MULTILINE)}
    return sorted(number for number in found if number >= OLDEST_ARCHITECTURE)


def choose_architectures(known: Sequence[int], wanted: str) -> tuple[int, ...]:
    """All known architectures, or those that wanted names, as "80 90"; ascending."""
    names = [] if wanted.strip() == ALL else wanted.split()
    if strange := [name for name in names if name not in map(str, known)]:
        raise BuildError(
            f"SGEMM_KERNELS_ARCHS='{wanted}': this nvcc does not compile for {' '.join(strange)}. "
            f"It can be 'native', 'all', or some of: {' '.join(map(str, known))}"
        )
    return tuple(sorted({int(name) for name in names} or known))


def gpus() -> tuple[int, ...]:
    """The compute capabilities, as 90, of the GPUs that nvidia-smi lists here; ascending."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.findall(r"^(\d+)\.(\d)\s*$", answer, re.MULTILINE)
    return tuple(sorted({int(major + minor) for major, minor in found}))


def native_architectures(known: Sequence[int], present: Sequence[int]) -> tuple[int, ...]:
    """What to compile for the GPUs that are present: for each the newest that it runs; ascending.

    A GPU newer than all that nvcc knows runs the PTX of the newest.
    """
    chosen = {max((k for k in known if k <= gpu), default=0) for gpu in present} - {0}
    if not chosen:
        found = " ".join(map(str, present)) or "none"
        raise BuildError(
            f"SGEMM_KERNELS_ARCHS=native asks for this machine's GPUs, and nvidia-smi finds "
            f"{found}, where {known[0]} or newer is needed. Name the architectures, as in "
            "SGEMM_KERNELS_ARCHS='80 90'"
        )
    return tuple(sorted(chosen))


def describe_architectures(architectures: Sequence[int]) -> str:
    """What the extension is compiled for, as "sm_80 sm_90 compute_90": PTX for the newest."""
    return " ".join([*(f"sm_{number}" for number in architectures), f"compute_{architectures[-1]}"])


def architecture_flags(architectures: Sequence[int]) -> list[str]:
    """What tells nvcc to compile for all that describe_architectures lists."""
    newest = architectures[-1]
    return [
        *(f"-gencode=arch=compute_{number},code=sm_{number}" for number in architectures),
        f"-gencode=arch=compute_{newest},code=compute_{newest}",
    ]


def hopper_flags() -> list[str]:
    """What tells nvcc to compile for compute capability 9.0 with what no newer GPU has: sm_90a."""
    return ["-gencode=arch=compute_90a,code=sm_90a"]


def csrc_hash(csrc: Path) -> str:
    """16 hexadecimal digits over the path and content of every source file below csrc."""
    digest = hashlib.sha256()
    for path in sorted(path for path in csrc.rglob("*") if path.suffix in SOURCE_SUFFIXES):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(csrc).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _has_nvcc(root: Path) -> bool:
    return (root / "bin/nvcc").is_file()


def _checked(root: Path, said: str) -> Path:
    if not _has_nvcc(root):
        raise BuildError(
            f"{said} names no CUDA toolkit: there is no {root}/bin/nvcc. Correct it; or "
            f"{_OTHER_WAYS}"
        )
    return root


def _ask(nvcc: Path, question: str) -> str:
    try:
        return subprocess.run([nvcc, question], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"`{nvcc} {question}` failed: {error}. {_OTHER_WAYS}") from None
