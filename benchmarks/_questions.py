"""The ablations: ten ideas, each with a baseline, altered settings, and expectations.

A setting is a file of ``ablations/`` and its constants. ``tile.cu`` has these:

| constants | meaning |
| :-- | :-- |
| BM, BN, BK, TM, TN | the block's tile of C, its step along K, one thread's results |
| RESIDENT | resident blocks per SM that the registers must allow |
| BUFFERS | tiles in shared memory: the current one, and with 2 the next one |
| FRAGMENTS | with 2 a step's values of A and B are read from shared memory a step ahead |
| ASYNC | B goes to shared memory by cp.async, without passing through registers |
| AHEAD | with 1 the next tile is loaded into registers as this one begins, with 0 after it |
| STORE_AT, STORE_STEPS | before which step that is stored, over how many; BK: as the tile ends |
| SEPARATE_LOADERS | with 1 half of the threads load A and the others B; with 0 all load both |
| ORDER | order of one step's multiply-adds: plain, serpentine_n, serpentine_m, swirl |
| LANE_ROWS, Z_ORDER | the warp's lanes as a rectangle, numbered by rows or along a Z-order curve |
| PADDING, SWIZZLE | avoid bank conflicts in stores of the transposed tile of A |
| RASTER | rows of tiles in a band; blocks go down its columns |
| UNROLL | unrolled steps of a tile; a loop repeats them |
"""

from __future__ import annotations

from dataclasses import dataclass, field

Constants = dict[str, int | str]

SMALL: Constants = {
    "BM": 128,
    "BN": 128,
    "BK": 8,
    "TM": 8,
    "TN": 8,
    "RESIDENT": 2,
    "BUFFERS": 2,
    "FRAGMENTS": 2,
    "ASYNC": 0,
    "AHEAD": 1,
    "STORE_STEPS": 1,
    "SEPARATE_LOADERS": 0,
    "ORDER": "serpentine_n",
    "LANE_ROWS": 4,
    "Z_ORDER": 0,
    "PADDING": 4,
    "SWIZZLE": 0,
    "RASTER": 8,
    "STORE_AT": "BK",
    "UNROLL": "BK",
}
LARGE: Constants = SMALL | {"BN": 256, "BK": 16, "TN": 16, "RESIDENT": 1, "ASYNC": 1}
UNBUFFERED: Constants = SMALL | {"BUFFERS": 1, "FRAGMENTS": 1, "AHEAD": 0}


@dataclass(frozen=True)
class Kernel:
    """A file of ``ablations/``, and its constants."""

    source: str
    constants: Constants


@dataclass(frozen=True)
class Setting:
    """A name for readers, and the constants that differ from the question's common ones."""

    name: str
    constants: Constants = field(default_factory=dict)
    source: str = "tile.cu"
    spills: bool = False  # whether ptxas is expected to spill registers for it


@dataclass(frozen=True)
class Question:
    """One idea, as in ablations/README.md. The first setting is the baseline of the others."""

    key: str
    idea: str
    common: Constants
    settings: tuple[Setting, ...]
    sizes: tuple[int, ...] = (4096,)

    def kernel(self, setting: Setting) -> Kernel:
        return Kernel(setting.source, self.common | setting.constants)


QUESTIONS = (
    Question(
        "double-buffering",
        "Double buffering alone",
        UNBUFFERED,
        (
            Setting("one buffer"),
            Setting("two buffers", {"BUFFERS": 2, "AHEAD": 1, "STORE_AT": 0}),
            Setting("one buffer, loaded a tile ahead", {"AHEAD": 1}),
            Setting("two buffers, loaded a tile ahead", {"BUFFERS": 2, "AHEAD": 1}),
        ),
    ),
    Question(
        "layout",
        "Padding against swizzle",
        LARGE,
        (
            Setting("padding of 4"),
            Setting("neither", {"PADDING": 0}),
            Setting("swizzle", {"PADDING": 0, "SWIZZLE": 1}),
        ),
    ),
    Question(
        "lanes",
        "Z-order lane maps",
        SMALL,
        (
            Setting("4 x 8 lanes by rows"),
            Setting("4 x 8 lanes in Z-order", {"Z_ORDER": 1}),
            Setting("2 x 16 lanes by rows", {"LANE_ROWS": 2}),
            Setting("8 x 4 lanes by rows", {"LANE_ROWS": 8}),
        ),
    ),
    Question(
        "loaders",
        "Half of the block loads A, the other half B",
        SMALL,
        (
            Setting("all threads load both"),
            Setting("half load A, half load B", {"SEPARATE_LOADERS": 1}),
        ),
    ),
    Question(
        "shapes",
        "TM x TN: other shapes of a thread's results",
        SMALL,
        (
            Setting("8 x 8"),
            Setting("4 x 16", {"TM": 4, "TN": 16}),
            Setting("16 x 4", {"TM": 16, "TN": 4}, spills=True),
            # 512 threads load one float4 each; RESIDENT 1 allows enough registers.
            Setting("8 x 4, 512 threads", {"TN": 4, "SEPARATE_LOADERS": 1, "RESIDENT": 1}),
        ),
    ),
    Question(
        "stores",
        "Stores between the multiply-adds",
        LARGE,
        (
            Setting("at the end of the tile"),
            Setting("in the middle", {"STORE_AT": 8}),
            Setting("one per step in the second half", {"STORE_AT": 8, "STORE_STEPS": 8}),
        ),
    ),
    Question(
        "size",
        "8 x 8 against 16 x 8",
        SMALL,
        (
            Setting("8 x 8, block of 128 x 128"),
            Setting("16 x 8, block of 128 x 128", {"TM": 16}),
            Setting("8 x 16, block of 128 x 128", {"TN": 16}),
            Setting("16 x 8, block of 256 x 128", {"TM": 16, "BM": 256, "RESIDENT": 1}),
            Setting("8 x 16, block of 128 x 256", {"TN": 16, "BN": 256, "RESIDENT": 1}),
        ),
    ),
    Question(
        "order",
        "Register reuse order",
        LARGE,
        (
            Setting("row after row", {"ORDER": "plain"}),
            Setting("serpentine along n"),
            Setting("serpentine along m", {"ORDER": "serpentine_m"}),
            Setting("2 x 2 swirl", {"ORDER": "swirl"}),
        ),
    ),
    Question(
        "raster",
        "Blocks in groups of rows, for the L2 cache",
        LARGE,
        (
            Setting("row after row", {"RASTER": 1}),
            Setting("groups of 8 rows"),
            Setting("groups of 16 rows", {"RASTER": 16}),
        ),
        (8192, 16384),
    ),
    Question(
        "depth",
        "Larger BK",
        LARGE,
        (
            Setting("BK 16"),
            Setting("BK 8", {"BK": 8}),
            Setting("BK 32", {"BK": 32}),
            Setting("BK 32, 16 steps written out", {"BK": 32, "UNROLL": 16}),
        ),
    ),
)
