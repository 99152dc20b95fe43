"""Draws every picture that stands beside results anew: ``make pictures``. Measures nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _results import RESULTS


def drawn(folder: Path) -> list[Path]:
    """The results of a GPU that have pictures beside them."""
    return [
        path for path in sorted(folder.glob("*.json")) if any(folder.glob(f"{path.stem}-*.svg"))
    ]


def script_of(path: Path) -> Path:
    """What measured it: peers.py of peers.json and of peers-normal.json."""
    return Path(__file__).with_name(f"{path.stem.partition('-')[0]}.py")


def main() -> None:
    for folder in sorted(RESULTS.iterdir()):
        for path in drawn(folder):
            subprocess.run([sys.executable, script_of(path), "-o", path, "--draw"], check=True)
            print(path)


if __name__ == "__main__":
    main()
