"""Keeps the cost-model constants of ``simt``'s planner that were fitted on this machine, by GPU
model.

``benchmarks/plan_times.py --keep`` fits them. They are valid only for the kernels that it measured:
a build with other kernels uses the built-in constants, which were fitted to an H100.
"""

import contextlib
import os
from pathlib import Path

from . import _core
from ._catalog import Device
from ._folder import wanted

FILE = "plans.json"


def constants_for(model: str) -> dict[str, float]:
    """Constants by their names in constants.h, and `slots_BMxBNxBK` by tile configuration."""
    return _core._plan_constants(model)


def constants_on(device: Device) -> dict[str, float]:
    """The constants that products on a GPU use."""
    of_sheet = None if model_is_fitted(device.model) else _of_sheet(device)
    return of_sheet or constants_for(device.model)


def source_of(device: Device) -> str:
    """Where the constants of a GPU come from, in words."""
    if model_is_fitted(device.model):
        return "fitted on this machine"
    return "from the GPU's data sheet" if _of_sheet(device) else "fitted to an H100"


def model_is_fitted(model: str) -> bool:
    """Whether constants were fitted on this machine for GPUs of this model."""
    return constants_for(model) != constants_for("")


def _of_sheet(device: Device) -> dict[str, float] | None:
    """None for GPUs that need no such constants or are not in the table."""
    clocks = (device.clock_mhz or 0, device.memory_clock_mhz or 0)
    return _core._plan_constants_of_sheet(
        *(device.compute_capability or (0, 0)),
        *clocks,
        device.memory_bus_bits or 0,
        device.multiprocessors,
    )


def keep(model: str, constants: dict[str, float]) -> Path:
    """Saves the constants for this model in the user's cache folder. Later processes use them.

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
    """The constants by model. Empty if there is no file or it is from another build."""
    if not os.path.isfile(path):  # the usual case: skip the import of json
        return {}
    import json

    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        same = document["csrc_hash"] == _core._build_info()["csrc_hash"]
        return dict(document["models"]) if same else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}


def use_kept() -> None:
    """Passes the saved constants to the extension."""
    try:
        models = _kept(wanted() / FILE)
    except OSError:  # a relative folder in a deleted working folder
        return
    for model, constants in models.items():
        with contextlib.suppress(ValueError, TypeError, OverflowError):
            _core._keep_plan_constants(model, constants)
