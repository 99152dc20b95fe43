"""Chooses the CUDA or HIP toolkit and the architectures to build for; computes the csrc hash.

Each choice depends only on its arguments, so that tests can cover every case. Nothing compiles
here.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
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
GENERATIONS = (75, 80, 90, 100)
"""The architectures at which the kernels' code changes (__CUDA_ARCH__ in csrc)."""
SOURCE_SUFFIXES = {".c", ".cpp", ".cu", ".h", ".map", ".toml"}

_OTHER_WAYS = (
    "SGEMM_KERNELS_CUDA=index builds with nvcc from the package index, "
    "SGEMM_KERNELS_CUDA=0 builds for the CPU only"
)


class BuildError(Exception):
    """The build cannot continue. The message says what is missing and how to get it."""


@dataclass(frozen=True)
class Toolkit:
    """A CUDA toolkit that can build this package."""

    nvcc: Path
    cudart: Path  # the static library
    version: str  # of nvcc, such as "13.0.88"
    architectures: tuple[int, ...]  # ascending; also PTX for the last


@dataclass(frozen=True)
class HipToolkit:
    """A HIP installation, for a build for AMD GPUs."""

    hipcc: Path
    library: Path  # the shared runtime
    version: str  # such as "5.2.21153"
    architectures: tuple[str, ...]


def choose(environ: Mapping[str, str], usual_place: Path = USUAL_PLACE) -> Path | str | None:
    """The toolkit root that SGEMM_KERNELS_CUDA selects, INDEX, or None for a CPU-only build.

    The default ("auto") tries CUDA_HOME, nvcc on PATH, the usual place and INDEX, and is never
    None. Raises BuildError for a folder without nvcc and for an unknown value.
    """
    setting = environ.get("SGEMM_KERNELS_CUDA") or "auto"
    if setting == "0":
        return None
    if setting == INDEX:
        return INDEX
    if "/" in setting:
        return _checked(Path(setting), f"SGEMM_KERNELS_CUDA={setting}")
    if setting != "auto":
        raise BuildError(
            f"SGEMM_KERNELS_CUDA={setting} is not understood: set it to the path of a CUDA "
            "toolkit, such as /usr/local/cuda, or 'index', '0' or 'auto'"
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
    """The hipcc to build with for AMD GPUs, or None if the build is not for AMD GPUs.

    SGEMM_KERNELS_HIP is the path of hipcc or of its root, or "1" (hipcc on PATH or in the usual
    place). The default ("auto") looks in the same places, but only if SGEMM_KERNELS_CUDA is "auto"
    and no CUDA toolkit is installed. Raises BuildError if a requested hipcc is missing and for an
    unknown value.
    """
    setting = environ.get("SGEMM_KERNELS_HIP") or "auto"
    cuda = environ.get("SGEMM_KERNELS_CUDA") or "auto"
    if setting == "0":
        return None
    if setting != "auto" and cuda not in ("auto", "0"):
        raise BuildError(
            f"SGEMM_KERNELS_HIP={setting} and SGEMM_KERNELS_CUDA={cuda}: a build supports the GPUs "
            "of one vendor only. Unset one of the two"
        )
    if "/" in setting:
        for hipcc in (Path(setting), Path(setting) / "bin/hipcc"):
            if hipcc.is_file():
                return hipcc
        raise BuildError(
            f"SGEMM_KERNELS_HIP={setting}: this is neither hipcc nor a folder that contains "
            "bin/hipcc. Correct the path"
        )
    if setting not in ("auto", "1"):
        raise BuildError(
            f"SGEMM_KERNELS_HIP={setting} is not understood: set it to '1', the path of hipcc or "
            "of its root, such as /opt/rocm, '0' or 'auto'"
        )
    if setting == "auto" and (cuda != "auto" or choose(environ, usual_cuda) != INDEX):
        return None
    found = shutil.which("hipcc", path=environ.get("PATH", ""))
    usual = usual_place / "bin/hipcc"
    hipcc = Path(found) if found else usual if usual.is_file() else None
    if not hipcc and setting == "1":
        raise BuildError(
            f"SGEMM_KERNELS_HIP=1 needs hipcc, which is neither on PATH nor in {usual_place}. "
            "Install it (Debian and Ubuntu: apt install hipcc), or set SGEMM_KERNELS_HIP to its "
            "path"
        )
    return hipcc


def build_requirements(environ: Mapping[str, str]) -> list[str]:
    """Packages that the build selected by environ needs from the package index."""
    index = not choose_hip(environ) and choose(environ) == INDEX
    return [NUMPY_REQUIREMENT, *([INDEX_REQUIREMENT] if index else [])]


def index_root(search_path: Iterable[str]) -> Path:
    """The root of the toolkit that pip installed on a Python search path."""
    for entry in search_path:
        root = Path(entry) / "nvidia/cu13"
        if _has_nvcc(root):
            return root
    raise BuildError(
        "no CUDA toolkit was found on this machine or in this Python environment. `pip install .` "
        "downloads one by itself. Without pip's build isolation, run: pip install "
        f"'{INDEX_REQUIREMENT}'. Or set SGEMM_KERNELS_CUDA to a toolkit's path. "
        "SGEMM_KERNELS_CUDA=0 builds for the CPU only"
    )


def inspect(root: Path, wanted_architectures: str = "") -> Toolkit:
    """Reads the version of the toolkit at root and chooses the architectures to compile for.

    The default is the architectures of this machine's GPUs, or all supported ones without a GPU.
    """
    nvcc = root / "bin/nvcc"
    version = parse_version(_ask(nvcc, "--version"))
    if int(version.split(".")[0]) < OLDEST_TOOLKIT:
        raise BuildError(
            f"the CUDA toolkit at {root} is version {version}, but {OLDEST_TOOLKIT}.0 or newer is "
            f"needed. Set SGEMM_KERNELS_CUDA to the path of a newer one; or {_OTHER_WAYS}"
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
    """Reads hipcc's version and chooses the architectures to compile for."""
    text = _ask(hipcc, "--version")
    version = re.search(r"HIP version: (\d+\.\d+\.\d+)", text)
    if not version:
        raise BuildError(f"no HIP version in the output of `hipcc --version`: {text.strip()!r}")
    wanted = wanted_architectures.split()
    names = HIP_ARCHITECTURES if wanted in ([], [ALL]) else tuple(wanted)
    if strange := [name for name in names if not re.fullmatch(r"gfx[0-9a-f]+", name)]:
        raise BuildError(
            f"SGEMM_KERNELS_ARCHS='{wanted_architectures}': {' '.join(strange)} is not an AMD "
            f"architecture. Examples: '{' '.join(HIP_ARCHITECTURES)}'"
        )
    root = hipcc.absolute().parent.parent
    for library in (*root.glob("lib*/libamdhip64.so"), *root.glob("lib/*/libamdhip64.so")):
        return HipToolkit(hipcc, library, version[1], names)
    raise BuildError(
        f"found {hipcc}, but no libamdhip64.so under {root}/lib. Install HIP's runtime package "
        "(Debian and Ubuntu: libamdhip64-dev)"
    )


def find_cudart(root: Path) -> Path:
    """The static CUDA runtime of the toolkit at root.

    It is in lib64 in NVIDIA's own layout, in lib in the package index's, in targets/*/lib in
    conda's, and in lib/* in Debian's.
    """
    for folder in ("lib64", "lib", "targets/*/lib", "lib/*"):
        for library in sorted(root.glob(f"{folder}/libcudart_static.a")):
            return library
    raise BuildError(
        f"the CUDA toolkit at {root} has nvcc but no libcudart_static.a. Install the package "
        f"cuda-cudart-dev (runtime headers and libraries); or {_OTHER_WAYS}"
    )


def parse_version(text: str) -> str:
    """The release in the output of `nvcc --version`, such as "13.0.88"."""
    if match := re.search(r"\bV(\d+\.\d+\.\d+)", text):
        return match[1]
    raise BuildError(
        f"no version in the output of `nvcc --version`: {text.strip()!r}. {_OTHER_WAYS}"
    )


def parse_architectures(text: str) -> list[int]:
    """The supported architectures in the output of `nvcc --list-gpu-code`, ascending.

    Skips sm_90a, sm_100f and the like, which run on one chip or family only.
    """
    found = {int(number) for number in re.findall(r"^sm_(\d+)$", text, re.MULTILINE)}
    return sorted(number for number in found if number >= OLDEST_ARCHITECTURE)


def choose_architectures(known: Sequence[int], wanted: str) -> tuple[int, ...]:
    """The architectures named in wanted, such as "80 90", or all known ones; ascending."""
    names = [] if wanted.strip() == ALL else wanted.split()
    if strange := [name for name in names if name not in map(str, known)]:
        raise BuildError(
            f"SGEMM_KERNELS_ARCHS='{wanted}': this nvcc does not compile for {' '.join(strange)}. "
            f"Use 'native', 'all', or some of: {' '.join(map(str, known))}"
        )
    return tuple(sorted({int(name) for name in names} or known))


def gpus() -> tuple[int, ...]:
    """Compute capabilities (90 for 9.0) of the GPUs that nvidia-smi lists; ascending."""
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ()
    found = re.findall(r"^(\d+)\.(\d)\s*$", answer, re.MULTILINE)
    return tuple(sorted({int(major + minor) for major, minor in found}))


def native_architectures(known: Sequence[int], present: Sequence[int]) -> tuple[int, ...]:
    """For each GPU present, the newest architecture in known that it runs; ascending.

    A GPU newer than every known architecture runs the PTX of the newest.
    """
    chosen = {max((k for k in known if k <= gpu), default=0) for gpu in present} - {0}
    if not chosen:
        found = " ".join(map(str, present)) or "none"
        raise BuildError(
            "SGEMM_KERNELS_ARCHS=native compiles for this machine's GPUs, which need compute "
            f"capability {known[0]} or newer; nvidia-smi finds {found}. Name the architectures, "
            "such as SGEMM_KERNELS_ARCHS='80 90'"
        )
    return tuple(sorted(chosen))


def describe_architectures(architectures: Sequence[int]) -> str:
    """The targets, such as "sm_80 sm_90 compute_90" (compute_90 is PTX for newer GPUs)."""
    newest = max(_generations(architectures))
    return " ".join([*(f"sm_{number}" for number in architectures), f"compute_{newest}"])


def architecture_flags(architectures: Sequence[int]) -> list[str]:
    """nvcc's flags for all targets that describe_architectures lists.

    The architectures of a generation are assembled from the same PTX, which takes most of the
    time to compile. The kernels contain no distinctions within a generation.
    """
    flags = []
    for oldest, members in (generations := _generations(architectures)).items():
        codes = [f"sm_{number}" for number in members]
        if oldest == max(generations):
            codes.append(f"compute_{oldest}")
        flags.append(f"-gencode=arch=compute_{oldest},code=[{','.join(codes)}]")
    return flags


def _generations(architectures: Sequence[int]) -> dict[int, list[int]]:
    """The architectures of each generation, by its oldest one among them."""
    found: dict[int, list[int]] = {}
    for _, group in itertools.groupby(
        sorted(architectures), lambda number: bisect.bisect(GENERATIONS, number)
    ):
        members = list(group)
        found[members[0]] = members
    return found


def hopper_flags() -> list[str]:
    """nvcc's flags for sm_90a: compute capability 9.0 with features that no newer GPU has."""
    return ["-gencode=arch=compute_90a,code=sm_90a"]


def csrc_hash(csrc: Path) -> str:
    """A hash (16 hexadecimal digits) of the path and content of every source file below csrc."""
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
            f"{said} is not a CUDA toolkit: {root}/bin/nvcc does not exist. Correct the path; or "
            f"{_OTHER_WAYS}"
        )
    return root


def _ask(nvcc: Path, question: str) -> str:
    try:
        return subprocess.run([nvcc, question], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise BuildError(f"`{nvcc} {question}` failed: {error}. {_OTHER_WAYS}") from None
