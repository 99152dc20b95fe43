"""Checks that Python, a compiler and headers are installed, and prints what is missing.

`python3 build_backend/prerequisites.py` is the Makefile's first step. This file imports nothing
from the project and also runs on Pythons that are too old for the rest (3.6 and newer).
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping

OLDEST_PYTHON = (3, 11)


def missing_python(version: "tuple[int, int]", has_venv: bool) -> "str | None":
    """A message if Python is too old or has no venv module; otherwise None."""
    if version < OLDEST_PYTHON:
        return (
            f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer is needed, but this is "
            f"{version[0]}.{version[1]}. Pass a newer one: make demo PYTHON=python3.12"
        )
    if not has_venv:
        return "this Python has no venv module (Debian and Ubuntu: apt install python3-venv)"
    return None


def missing_compiler(environ: "Mapping[str, str]") -> "str | None":
    """A message if the C or C++ compiler is not on PATH; otherwise None."""
    for language, variable, default in (("C", "CC", "cc"), ("C++", "CXX", "c++")):
        command = environ.get(variable) or default
        if not shutil.which(command, path=environ.get("PATH", "")):
            return (
                f"no {language} compiler: '{command}' is not on PATH. Install one (Debian and "
                "Ubuntu: apt install build-essential; Fedora: dnf install gcc gcc-c++), or set "
                f"{variable} to another compiler"
            )
    return None


def missing_headers(include: str) -> "str | None":
    """A message if the include folder has no Python headers; otherwise None."""
    if os.path.isfile(os.path.join(include, "Python.h")):
        return None
    return (
        f"no Python headers: {include}/Python.h does not exist. Install them (Debian and Ubuntu: "
        "apt install python3-dev; Fedora: dnf install python3-devel)"
    )


def main() -> "str | None":
    """A message about the first missing prerequisite, or None."""
    try:
        import ensurepip  # noqa: F401  (Debian's python3 has venv but not ensurepip)
        import venv  # noqa: F401

        has_venv = True
    except ImportError:
        has_venv = False
    missing = (
        missing_python(sys.version_info[:2], has_venv)
        or missing_compiler(os.environ)
        or missing_headers(sysconfig.get_paths()["include"])
    )
    return missing and f"{sys.executable}: {missing}"


if __name__ == "__main__":
    sys.exit(main())
