"""Keeps which GPUs' tensor cores passed `sgemm-kernels prove`, in the user's cache folder.

A proof is valid for the GPU's name and compute capability, and for the sources and the version that
it was made with. The driver's version is in the file that `prove` writes; it changes no arithmetic
of tensor cores.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from . import _core
from ._folder import wanted
from ._version import __version__

FILE = "proofs.json"


def keep(model: str, facts: dict[str, Any]) -> Path:
    """Saves the facts that ``known`` returns. This process and later ones use them.

    Returns the file.
    """
    import json

    from . import _cache
    from ._output import write_text

    path = _cache.folder() / FILE
    document = {**_bound(), "proofs": {**_kept(path), model: facts}}
    write_text(path, json.dumps(document, indent=1) + "\n")
    _use(model, facts)
    return path


def forget(model: str) -> None:
    """Removes a GPU's proof for later processes. Does nothing if there is none."""
    import json

    from ._output import write_text

    path = wanted() / FILE
    proofs = _kept(path)
    if proofs.pop(model, None) is not None:
        write_text(path, json.dumps({**_bound(), "proofs": proofs}, indent=1) + "\n")


def known(model: str, capability: tuple[int, int]) -> dict[str, Any] | None:
    """The saved facts of a GPU: compute_capability, date, rate and start (csrc/engine/proofs.h).

    None if there is no proof, or if it is of another build or damaged.
    """
    try:
        facts = _kept(wanted() / FILE).get(model)
    except OSError:  # a relative folder in a deleted working folder
        return None
    matches = isinstance(facts, dict) and facts.get("compute_capability") == list(capability)
    return facts if matches else None


def _bound() -> dict[str, str]:
    return {"csrc_hash": _core._build_info()["csrc_hash"], "version": __version__}


def _kept(path: Path) -> dict[str, Any]:
    """The facts by model. Empty if there is no file, or if it is damaged or of another build."""
    if not os.path.isfile(path):  # the usual case: skip the import of json
        return {}
    import json

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        same = all(document[key] == value for key, value in _bound().items())
        return dict(document["proofs"]) if same else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def _use(model: str, facts: dict[str, Any]) -> None:
    major, minor = facts["compute_capability"]
    _core._keep_proof(model, major, minor, facts["rate"], facts["start"])


def use_kept() -> None:
    """Passes the saved proofs to the extension."""
    try:
        proofs = _kept(wanted() / FILE)
    except OSError:
        return
    for model, facts in proofs.items():
        with contextlib.suppress(ValueError, TypeError, KeyError, OverflowError):
            _use(model, facts)
