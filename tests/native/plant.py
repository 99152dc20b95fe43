"""Plants a bug in the rung `fused`: prints its source with one mistake.

python plant.py NAME SOURCE prints the source; python plant.py --list prints all names. checks.mk
compiles them, and its checkers must find them. The mistakes are of kinds that `fused` adds to the
ladder; hopper.cu has mistakes of pipelines in general."""

import sys
from pathlib import Path

HEADERS = ("fused_launch.h", "fused_slices.h", "split_in_registers.h")
"""What the rung includes of its own; these texts take the places of the #include lines."""

STORED_SLICE = "            store_slice<Group>(q, work.slice, rows, sum, own);"
TICKET = """            static unsigned ended[4096];
            unsigned &place = *reinterpret_cast<unsigned *>(check.row_scale);
            Group::synchronize();
            if (thread == 0) {
                place = atomicAdd(&ended[2 * work.tile + group], 1u) % q.slices;
            }
            Group::synchronize();
"""

BUGS = {
    # undoes the scale of a K chunk by another row's scale
    "fused_other_scale": {"inverse[r / 2], sum[0][j][r]": "inverse[1 - r / 2], sum[0][j][r]"},
    # finds the largest magnitude of a row in half of the lanes that hold it
    "fused_half_of_row": {
        "largest = max_or_nan(largest, __shfl_xor_sync(0xffffffff, largest, 2));": ""
    },
    # reads the upper eight of 16 elements along K before the lower eight
    "fused_order_of_k": {"4 * d + i / 2 * 2 + lane": "4 * d + (1 - i / 2) * 2 + lane"},
    # splits two rows into each other's registers
    "fused_place_of_row": {
        "(row + i % 2 * 8) * row_floats": "(row + (1 - i % 2) * 8) * row_floats"
    },
    # reads a stage before its tiles have arrived
    "fused_no_wait": {"mbarrier_wait(shared.full + ahead.index, ahead.parity);": ""},
    # keeps partial sums in the order in which blocks end, so their sum depends on it
    "fused_order_of_slices": {STORED_SLICE: TICKET + STORED_SLICE.replace("work.slice", "place")},
}


def whole(source: str, folder: Path) -> str:
    """The source with the text of its own headers."""
    for header in HEADERS:
        text = (folder / header).read_text()
        source = source.replace(f'#include "{header}"\n', text)
    return source


def planted(name: str, source: str) -> str:
    """The source with the bug. Each replaced text must occur once."""
    for old, new in BUGS[name].items():
        if source.count(old) != 1:
            raise SystemExit(f"plant.py: {name}: not once in the source: {old}")
        source = source.replace(old, new)
    return source


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(BUGS))
    else:
        rung = Path(sys.argv[2])
        print(planted(sys.argv[1], whole(rung.read_text(), rung.parent)))
