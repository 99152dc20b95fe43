"""Plants a bug in a rung: prints its source with one mistake.

python plant.py NAME prints the source; python plant.py --list prints all names, which begin with
the rung's. checks.mk compiles them, and its checkers must find them. The mistakes in `fused` are of
kinds that it adds to the ladder; hopper.cu has mistakes of pipelines in general. Those in the
ladder's rungs show that the checkers watch the shared memory of plain kernels."""

import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from build_backend import rungs  # noqa: E402

FUSED = ROOT / "csrc/gemm/tensor_cores/fused.cu"

HEADERS = ("fused_launch.h", "fused_tiles.h", "fused_slices.h", "split_in_registers.h")
"""What the rung includes of its own; these texts take the places of the #include lines."""

STORED_SLICE = "            store_slice<Group>(q, work.part, rows, sum, own);"
TICKET = """            static unsigned ended[4096];
            unsigned &place = *reinterpret_cast<unsigned *>(check.row_scale);
            Group::synchronize();
            if (thread == 0) {
                place = work.part - work.part % q.slices +
                        atomicAdd(&ended[2 * work.tile + group], 1u) % q.slices;
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
        "(row + i % 2 * 8) * line_floats": "(row + (1 - i % 2) * 8) * line_floats"
    },
    # reads a stage before its tiles have arrived
    "fused_no_wait": {"mbarrier_wait(shared.full + ahead.index, ahead.parity);": ""},
    # keeps partial sums in the order in which blocks end, so their sum depends on it
    "fused_order_of_slices": {STORED_SLICE: TICKET + STORED_SLICE.replace("work.part", "place")},
    # reads a row behind the array Bs
    "tile2d_overread": {"&Bs[k][tx]": "&Bs[k][tx] + BN"},
    # computes with tiles that others may still be storing
    "tile2d_no_barrier": {"__syncthreads(); // the tiles are complete": ""},
    # does not store zeros beyond the edges of B
    "tile2d_unset_edge": {
        "Bs[b_k + i][b_col] = inside ? b_from[(size_t)i * N] : 0.0f;": "if (inside) "
        "Bs[b_k + i][b_col] = b_from[(size_t)i * N];"
    },
    # reads behind the memory that the launch allocates
    "async_overread": {"b = &s.Bs[next][0][tx]": "b = (const float *)(&s + 1) - BN"},
    # does not wait for the tiles that other threads copy
    "async_no_wait": {"wait(next, token);": ""},
}


def text_of_fused() -> str:
    """The source with the text of its own headers."""
    source = FUSED.read_text()
    for header in HEADERS:
        line = f'#include "{header}"\n'
        source = source.replace(line, (FUSED.parent / header).read_text(), 1).replace(line, "")
    return source


def planted(name: str, source: str) -> str:
    """The source with the bug. Each replaced text must occur once."""
    for old, new in BUGS[name].items():
        if source.count(old) != 1:
            raise SystemExit(f"plant.py: {name}: not once in the source: {old}")
        source = source.replace(old, new)
    return source


def launcher(name: str) -> str:
    """The file that the build would generate for the rung with the bug."""
    rung = name.partition("_")[0]
    table = tomllib.loads((ROOT / rungs.TABLE).read_text())[rung]
    text = (ROOT / rungs.TABLE.parent / table["file"]).read_text()
    return rungs.launcher(rung, table, planted(name, text))


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(BUGS))
    else:
        bug = sys.argv[1]
        in_fused = bug.startswith("fused_")
        print(planted(bug, text_of_fused()) if in_fused else launcher(bug))
