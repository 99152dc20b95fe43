"""Adds a file of `sgemm-kernels prove --json` to the proofs of GPUs that users sent.

``python benchmarks/gpu_checks.py a100.json`` checks the file and copies it to
``benchmarks/gpu_checks/proofs/``, under the GPU's name.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from sgemm_kernels.proving.proof import read_document

FOLDER = Path(__file__).parent / "gpu_checks" / "proofs"


def accept(path: Path, folder: Path = FOLDER) -> Path:
    """Copies a proof to the folder and returns the new file.

    Raises ValueError if it is no file of ``prove``, or if it contradicts itself.
    """
    document = read_document(path)
    name = re.sub(r"[^a-z0-9]+", "-", document["device"].lower().removeprefix("nvidia ")).strip("-")
    folder.mkdir(exist_ok=True)
    target = folder / f"{name}.json"
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return target


def main() -> int:
    """Returns 2 if a file is refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", metavar="FILE.json", nargs="+", type=Path)
    for path in parser.parse_args().files:
        try:
            print(accept(path))
        except (OSError, ValueError) as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
