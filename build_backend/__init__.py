"""The setuptools.build_meta backend. On machines without a CUDA toolkit it also requires nvcc from
the package index.

Only the hooks that compile add requirements: metadata and sdists need neither nvcc nor NumPy.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

from .toolkit import BuildError, build_requirements

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def _build_requirements() -> list[str]:
    try:
        return build_requirements(os.environ)
    except BuildError as error:
        sys.exit(f"error: {error}")


def get_requires_for_build_wheel(config_settings: Any = None) -> list[str]:
    """Build requirements in addition to those in pyproject.toml."""
    return build_meta.get_requires_for_build_wheel(config_settings) + _build_requirements()


def get_requires_for_build_editable(config_settings: Any = None) -> list[str]:
    """Build requirements in addition to those in pyproject.toml."""
    return build_meta.get_requires_for_build_editable(config_settings) + _build_requirements()
