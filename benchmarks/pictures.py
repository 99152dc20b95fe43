"""Draws every committed picture again from its results: ``make pictures``. Measures nothing.

The picture of the ladder's page, in docs/, needs Chromium.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _results import RESULTS, stem


def drawn(folder: Path) -> list[Path]:
    """The result files of a GPU that have pictures beside them."""
    files = sorted(folder.glob("*.json*"))
    pictures = {stem(path) for path in folder.glob("*.svg")}
    kinds = {name.rpartition("-")[0] for name in pictures}  # ladder-speed shows ladder
    return [path for path in files if stem(path) in pictures | kinds]


def script_of(path: Path) -> Path:
    """The experiment that wrote a file: peers.py for peers.json and for peers-normal.json."""
    return Path(__file__).with_name(f"{stem(path).partition('-')[0]}.py")


def main() -> None:
    for folder in sorted(RESULTS.iterdir()):
        for path in drawn(folder):
            subprocess.run([sys.executable, script_of(path), "-o", path, "--draw"], check=True)
            print(path, flush=True)
    ladder = [sys.executable, "-m", "tests.picture_of_ladder"]
    subprocess.run(ladder, check=True, cwd=RESULTS.parent.parent)


if __name__ == "__main__":
    main()
