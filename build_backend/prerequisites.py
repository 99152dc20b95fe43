"""What a machine must have before anything can be built, and the one line that says what it lacks.

`python3 build_backend/prerequisites.py` is the Makefile's first step, so this file stands by itself
and is read by Pythons that are too old for the rest (3.6 and newer).
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping

OLDEST_PYTHON = (3, 11)


def missing_python(version: "tuple[int, int]", has_venv: bool) -> "str | None":
    """A sentence about a Python that is too old or lacks its venv module, or None."""
    if version < OLDEST_PYTHON:
        return (
            f"Python {OLDEST_PYTHON[0]}.{OLDEST_PYTHON[1]} or newer is needed, this is "
            f"{version[0]}.{version[1]}. Name a newer one, as in: make demo PYTHON=python3.12"
        )
    if not has_venv:
        return "this Python has no venv module (Debian and Ubuntu: apt install python3-venv)"
    return None


def missing_compiler(environ: "Mapping[str, str]") -> "str | None":
    """A sentence about the C or C++ compiler that is not on PATH, or None."""
    for language, variable, default in (("C", "CC", "cc"), ("C++", "CXX", "c++")):
        command = environ.get(variable) or default
        if not shutil.which(command, path=environ.get("PATH", "")):
            return (
                f"no {language} compiler: '{command}' is not on PATH. Install one (Debian and "
                "Ubuntu: apt install build-essential; Fedora: dnf install gcc gcc-c++), or name "
                f"yours in {variable}"
            )
    return None


def missing_headers(include: str) -> "str | None":
    """A sentence about the Python headers that are not in the folder include, or None."""
    if os.path.isfile(os.path.join(include, "Python.h")):
        return None
    return (
        f"no Python headers: there is no {include}/Python.h. Install them (Debian and Ubuntu: "
        "apt install python3-dev; Fedora: dnf install python3-devel)"
    )


def main() -> "str | None":
    """The first thing that is missing on this machine, or None."""
    try:
        import ensurepip  # noqa: F401  (Debian's python3 has venv, and not what venv needs)
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
