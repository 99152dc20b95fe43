"""What plans of `simt` are estimated with on a model of GPU, where that was fitted on this machine.

``benchmarks/plan_times.py --keep`` fits. It holds for the kernels that it measured: a build of
other kernels goes by its own constants, which were fitted to an H100.
"""

import contextlib
import os
from pathlib import Path

from . import _core
from ._folder import wanted

FILE = "plans.json"


def constants_for(model: str) -> dict[str, float]:
    """By their names in csrc/engine/plan.h; and `slots_BMxBNxBK` of each tile configuration."""
    return _core._plan_constants(model)


def keep(model: str, constants: dict[str, float]) -> Path:
    """Keeps them in the user's cache folder, beside those of other models, for processes to come.

    Returns the file.
    """
    import json

    from . import _cache
    from ._output import write_text

    path = _cache.folder() / FILE
    models = {**_kept(path), model: constants}
    document = {"csrc_hash": _core._build_info()["csrc_hash"], "models": models}
    write_text(path, json.dumps(document, indent=1) + "\n")
    return path


def _kept(path: Path) -> dict[str, dict[str, float]]:
    """By model; none where there is no such file, or one of another build."""
    if not os.path.isfile(path):  # as nearly always: nothing more is imported
        return {}
    import json

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        same = document["csrc_hash"] == _core._build_info()["csrc_hash"]
        return dict(document["models"]) if same else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def use_kept() -> None:
    """Has the extension estimate with what is kept."""
    try:
        models = _kept(wanted() / FILE)
    except OSError:  # a relative folder, and the working folder is gone
        return
    for model, constants in models.items():
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            _core._keep_plan_constants(model, constants)
