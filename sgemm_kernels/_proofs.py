"""Keeps which GPUs' tensor cores passed `sgemm-kernels prove`, in the user's cache folder.

A proof is valid for the GPU's name and compute capability, and for the sources and the version that
it was made with. The driver's version is in the file that `prove` writes; it changes no arithmetic
of tensor cores. csrc/runtime/kept_proofs.c reads the file, too: a line for the build, and one for
each GPU.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from . import _core
from ._folder import wanted
from ._version import __version__

FILE = "proofs.txt"


def keep(model: str, facts: dict[str, Any]) -> Path:
    """Saves the facts that ``known`` returns. This process and later ones use them.

    Returns the file.
    """
    from . import _cache

    path = _cache.folder() / FILE
    _write(path, {**_kept(path), model: facts})
    major, minor = facts["compute_capability"]
    _core._keep_proof(model, major, minor, facts["rate"], facts["start"])
    return path


def forget(model: str) -> None:
    """Removes a GPU's proof for later processes. Does nothing if there is none."""
    path = wanted() / FILE
    proofs = _kept(path)
    if proofs.pop(model, None) is not None:
        _write(path, proofs)


def known(model: str, capability: tuple[int, int]) -> dict[str, Any] | None:
    """The saved facts of a GPU: compute_capability, date, rate and start (csrc/gemm/plan/proofs.h).

    None if there is no proof, or if it is of another build or damaged.
    """
    try:
        facts = _kept(wanted() / FILE).get(model)
    except OSError:  # a relative folder in a deleted working folder
        return None
    return facts if facts and facts["compute_capability"] == list(capability) else None


def _build() -> str:
    """The first line."""
    return f"sgemm_kernels {_core._build_info()['csrc_hash']} {__version__}"


def _write(path: Path, proofs: dict[str, dict[str, Any]]) -> None:
    from ._output import write_text

    lines = [_build()]
    for model, facts in proofs.items():
        capability = "{} {}".format(*facts["compute_capability"])
        lines.append(f"{capability} {facts['rate']} {facts['start']} {facts['date']} {model}")
    write_text(path, "\n".join(lines) + "\n")


def _kept(path: Path) -> dict[str, dict[str, Any]]:
    """The facts by model. Empty if there is no file, or if it is damaged or of another build."""
    if not os.path.isfile(path):
        return {}
    try:
        build, *lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, ValueError):
        return {}
    proofs = {}
    for line in lines if build == _build() else ():
        with contextlib.suppress(ValueError):
            major, minor, rate, start, date, model = line.split(" ", 5)
            proofs[model] = {
                "compute_capability": [int(major), int(minor)],
                "date": date,
                "rate": float(rate),
                "start": float(start),
            }
    return proofs
