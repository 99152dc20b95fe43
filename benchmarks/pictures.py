"""Draws every picture and writes every table again, from the results: ``make pictures``.

Measures nothing.

The picture of the ladder's page, in docs/, needs Chromium.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from _results import CLONE, RESULTS, stem

from sgemm_kernels.cli.report import renew

PAGES = ("*.md", "docs/**/*.md", "csrc/**/*.md", "benchmarks/**/*.md")


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
    for document in sorted(path for place in PAGES for path in CLONE.glob(place)):
        if "\n<!-- results: " in document.read_text(encoding="utf-8"):
            renew(document)
    ladder = [sys.executable, "-m", "tests.picture_of_ladder"]
    subprocess.run(ladder, check=True, cwd=CLONE)


if __name__ == "__main__":
    main()
