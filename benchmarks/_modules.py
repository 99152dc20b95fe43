"""The libraries that an experiment compares with, as far as they start on this machine."""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from typing import Any


def imported(modules: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """Imports modules, given by the name that a result reports. Returns those that can be used, and
    the reasons why the others cannot. PyTorch does not use TF32, and JAX must have a GPU."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # leaves memory to the others
    found, missing = {}, {}
    for name, module in modules.items():
        try:
            found[name] = importlib.import_module(module)
            if name == "torch":
                found[name].cuda.init()
                found[name].set_float32_matmul_precision("highest")
            elif name == "jax" and found[name].default_backend() != "gpu":
                raise RuntimeError(f"it computes on the {found[name].default_backend()} here")
        except Exception as error:  # any error of a library that does not start
            found.pop(name, None)
            missing[name] = first_line(error)
    return found, missing


def first_line(error: Exception) -> str:
    """The first line of an error's message; its type, if it has none."""
    return (str(error).strip() or repr(error)).partition("\n")[0]
