"""Runs a custom kernel on a GPU under compute-sanitizer, and turns its output into findings."""

import os
import pickle
import re
import shutil
import subprocess
import sys
from typing import Any

import numpy as np

from .. import _core
from .cases import Tile, tile_of
from .child_process import become_child, run_limited
from .compiler import NoCompilerError
from .diagnosis import Finding

_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_SECONDS = 300.0
"""The time limit of one tool. A process starts slowly under it."""
_KINDS = {
    r"Invalid __\w+__": "out of bounds",
    r"misaligned": "unaligned",
    r"Race reported": "race",
    r"Uninitialized": "uninitialized read",
    r"Barrier error|Divergent": "divergent barrier",
}
_PLACE = re.compile(r" in (?:\S*/)?([^\s/:]+):(\d+)")
_THREAD = re.compile(r"by thread \((\d+),(\d+),(\d+)\) in block \((\d+),")
_MAIN = """\
import sys, pickle
sys.path[:] = pickle.loads(sys.stdin.buffer.read(int(sys.argv[1])))
from sgemm_kernels.custom.compute_sanitizer import multiply_some
multiply_some(sys.stdin.buffer.read(), sys.argv[2])
"""


def find() -> str:
    """The machine's compute-sanitizer. Raises NoCompilerError."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    for place in (shutil.which("compute-sanitizer"), f"{home}/bin/compute-sanitizer"):
        if place and os.access(place, os.X_OK):
            return place
    raise NoCompilerError(
        "there is no compute-sanitizer to watch a kernel on a GPU: it is part of CUDA toolkits; "
        "name one's path in CUDA_HOME, or leave device out to have the CPU device watch it"
    )


def watch(own: Any, device: str) -> tuple[int, list[Finding]]:
    """Runs all tools. Returns the number of products, and the findings."""
    path, content = pickle.dumps(sys.path), pickle.dumps(own)
    findings: dict[tuple[Any, ...], Finding] = {}
    for tool in _TOOLS:
        command = [find(), "--tool", tool, "--print-limit", "20", sys.executable, "-c", _MAIN]
        try:
            done = run_limited([*command, str(len(path)), device], _SECONDS, content=path + content)
        except subprocess.TimeoutExpired:
            text = f"under {tool} it was not done after {_SECONDS:g} s"
            return 0, [*findings.values(), Finding("endless", text)]
        output = (done.stdout + done.stderr).decode(errors="replace")
        told = _parsed(output, tool)
        if done.returncode != 0 and not told:
            last = " ".join(output.split("\n")[-4:]).strip()
            text = f"under {tool}: exit status {done.returncode}, {last}"
            told = [Finding("ended its process", text)]
        for finding in told:
            findings.setdefault((finding.kind, finding.file, finding.line), finding)
    return len(_TOOLS) * len(_cases(tile_of(own.variant))), list(findings.values())


def _parsed(output: str, tool: str) -> list[Finding]:
    """The findings in a tool's output."""
    lines = [line.removeprefix("=========") for line in output.splitlines() if "=====" in line]
    findings = []
    for index, line in enumerate(lines):
        kind = next((kind for words, kind in _KINDS.items() if re.search(words, line)), None)
        if kind is None or line.startswith("     "):
            continue
        about = " ".join(lines[index : index + 4])
        place, by = _PLACE.search(about), _THREAD.search(about)
        findings.append(
            Finding(
                kind,
                f"{tool}: {line.strip()}",
                file=place[1] if place else None,
                line=int(place[2]) if place else None,
                threads=(int(by[1]),) if by else (),
                block=int(by[4]) if by else None,
            )
        )
    return findings


def _cases(tile: Tile) -> list[tuple[int, int, int]]:
    return [
        (tile.BM, tile.BN, 2 * tile.BK),
        (tile.BM + 1, max(tile.BN - 1, 1), 5 * tile.BK + 1),
    ]


def multiply_some(content: bytes, device: str) -> None:
    """Runs under a tool: computes some products with the pickled kernel."""
    become_child()
    own = pickle.loads(content)
    for M, N, K in _cases(tile_of(own.variant)):
        A, B = np.ones((M, K), np.float32), np.ones((K, N), np.float32)
        _core.run(own, A, B, device=device)
