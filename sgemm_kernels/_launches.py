"""How the plain rungs of csrc/ladder are launched, from the table csrc/ladder/launches.toml."""

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Any

from ._catalog import kernel_file


@cache
def launches() -> Mapping[str, Mapping[str, Any]]:
    """The entries of the table by the rung's name, in the ladder's order."""
    return tomllib.loads(kernel_file("launches.toml"))


def launch_keywords(rung: str) -> dict[str, Any]:
    """The arguments of ``kernel`` that launch a plain kernel as this rung. Empty for a kernel that
    is not in the table."""
    entry = launches().get(rung)
    if entry is None:
        return {}
    return {
        "grid": entry["grid"],
        "block": entry["block"],
        "shared": entry.get("dynamic_shared", 0),
        "tile": tuple(entry["tile"]),
    }
