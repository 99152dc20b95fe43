"""The last steps of a release, after `make wheels wheels-aarch64 docs`: all but the upload.

    python release/rehearse.py

Checks the version, the changelog and the packages in dist/, and writes the documentation's archive,
an SBOM for each wheel and SHA256SUMS beside them.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from hashlib import sha256
from pathlib import Path

import device_code
import sbom
import version
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT))

from build_backend.description import repository  # noqa: E402

DIST = ROOT / "dist"
WHEELS = ("x86_64", "aarch64")


def cuda_version(wheel: Path) -> str:
    """The CUDA toolkit that compiled a wheel, which the extension records. Exits if the wheel is
    not for every GPU."""
    with zipfile.ZipFile(wheel) as archive:
        library = archive.read("sgemm_kernels/_core.abi3.so")
    if not device_code.is_for_every_gpu(library):
        sys.exit(
            f"{wheel.name} is for some GPUs only. Unset SGEMM_KERNELS_ARCHS, then: make wheels "
            "wheels-aarch64"
        )
    return re.search(rb"\x00(\d+\.\d+\.\d+)\x00", library)[1].decode()


def main() -> None:
    number = version.to_release(ROOT)
    sdist = DIST / f"sgemm_kernels-{number}.tar.gz"
    wheels = [
        next(DIST.glob(f"sgemm_kernels-{number}-*_{machine}.whl"), None) for machine in WHEELS
    ]
    if not sdist.exists() or None in wheels:
        sys.exit("dist/ lacks the sdist or a wheel of this version: make wheels wheels-aarch64")
    packages = [sdist, *wheels]
    made = [*packages, DIST / f"sgemm_kernels-{number}-docs.tar.gz"]
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *packages], check=True)
    shutil.make_archive(str(made[-1]).removesuffix(".tar.gz"), "gztar", ROOT / "build/docs")
    for wheel in wheels:
        text = sbom.text(wheel, cuda_version(wheel))
        if fault := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
            sys.exit(f"the SBOM of {wheel.name} is invalid: {fault}")
        made.append(wheel.with_name(f"{wheel.name}.cdx.json"))
        made[-1].write_text(json.dumps(json.loads(text), indent=2) + "\n")
    for old in set(DIST.iterdir()) - set(made):
        old.unlink()
    sums = "".join(f"{sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in sorted(made))
    (DIST / "SHA256SUMS").write_text(sums)
    print(f"\n{sums}\nRehearsed {number}. To release it:")
    if repository(ROOT) is None:
        print("  name the repository in pyproject.toml, then: make release")
    print(f"  git tag -s v{number} && git push origin v{number}")
    print(f"  python -m twine upload {' '.join(p.relative_to(ROOT).as_posix() for p in packages)}")


if __name__ == "__main__":
    main()
