"""Measures the GPU code in a library that nvcc linked.

The section .nv_fatbin has containers of entries. An entry is machine code for one architecture, or
PTX. NVIDIA documents neither; the fields read here are those that its cuobjdump shows.
"""

import io
import struct
import sys
from collections import Counter
from pathlib import Path

from elftools.elf.elffile import ELFFile

sys.path.append(str(Path(__file__).resolve().parents[1]))

from build_backend.toolkit import OLDEST_ARCHITECTURE

_MAGIC = 0xBA55ED50
_CONTAINER = struct.Struct("<IHHQ")  # magic number, version, size of this header, of the entries
_ENTRY = struct.Struct(
    "<HHIQIIHHI"
)  # kind, -, size of this header, of the code; 5: the architecture
_PTX = 1


def sizes(library: bytes) -> dict[str, int]:
    """The bytes of GPU code for each architecture in a library, as sm_90 or PTX compute_90. The
    code of sm_90a counts as sm_90."""
    section = ELFFile(io.BytesIO(library)).get_section_by_name(".nv_fatbin")
    if section is None:
        return {}
    data, found, at = section.data(), Counter[tuple[bool, int]](), 0
    while at + _CONTAINER.size <= len(data):
        magic, _, header, held = _CONTAINER.unpack_from(data, at)
        if magic != _MAGIC:
            at += 8  # padding
            continue
        entry, end = at + header, at + header + held
        while entry < end:
            kind, _, before, size, *_, architecture = _ENTRY.unpack_from(data, entry)
            found[kind == _PTX, architecture] += size
            entry += before + size
        at = end
    return {
        f"PTX compute_{number}" if is_ptx else f"sm_{number}": size
        for (is_ptx, number), size in sorted(found.items())
    }


def is_for_every_gpu(library: bytes) -> bool:
    """Whether a library has code for the oldest supported GPUs, and PTX for future ones."""
    found = sizes(library)
    return f"sm_{OLDEST_ARCHITECTURE}" in found and any(name.startswith("PTX") for name in found)
