"""Gives the build ``annotate`` from sgemm_kernels/custom/annotate_assembly.py (custom kernels use
it too).

Loads the file by its path, because the package cannot be imported before its extension is built.
"""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "sgemm_kernels/custom/annotate_assembly.py"

_spec = spec_from_file_location("annotate_assembly", SOURCE)
assert _spec is not None
assert _spec.loader is not None
_module = module_from_spec(_spec)
_spec.loader.exec_module(_module)
annotate = _module.annotate
