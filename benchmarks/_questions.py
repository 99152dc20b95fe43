"""What the ablations ask: eleven ideas, each as a baseline, what is altered, and what to expect.

A setting gives a file of ``ablations/`` and its constants. Those of ``tile.cu``:

| constants | meaning |
| :-- | :-- |
| BM, BN, BK, TM, TN | the block's tile of C, its step along K, one thread's results |
| RESIDENT | the blocks of an SM that the registers must suffice for |
| BUFFERS | tiles in shared memory: the one in use, and with 2 the next one |
| FRAGMENTS | with 2 a step's values of A and B are read from shared memory a step ahead |
| ASYNC | B goes to shared memory by cp.async, without passing through registers |
| AHEAD | with 1 the next tile is loaded into registers as this one begins, with 0 after it |
| STORE_AT, STORE_STEPS | before which step that is stored, over how many; BK: as the tile ends |
| HALVES | half of the threads load A and the others B, in place of all both |
| ORDER | of one step's multiply-adds: plain, serpentine_n, serpentine_m, swirl |
| LANE_ROWS, Z_ORDER | the warp's lanes as a rectangle, numbered by rows or along a Z-order curve |
| PADDING, SWIZZLE | what keeps the stores of the transposed tile of A off the same banks |
| RASTER | the rows of tiles that blocks run down before they take the next column |
| UNROLL | the steps of a tile that are written out; the code repeats that |

``async.cu`` has none. That of ``tma.cu``:

| constants | meaning |
| :-- | :-- |
| A_STEPS | the steps of k of a row of A that a thread reads by one load: 2 or 4 |
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
    "HALVES": 0,
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
    """What is compiled: a file of ``ablations/``, and the constants that it is given."""

    source: str
    constants: Constants


@dataclass(frozen=True)
class Setting:
    """A name for readers, and what differs from the question's common constants."""

    name: str
    constants: Constants = field(default_factory=dict)
    source: str = "tile.cu"
    spills: bool = False  # whether ptxas is expected to spill registers for it


@dataclass(frozen=True)
class Question:
    """One idea. The first setting is the baseline of the others. `cause` is prose about results."""

    key: str
    idea: str
    common: Constants
    settings: tuple[Setting, ...]
    prediction: str
    cause: str
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
        "Two buffers need one barrier a tile in place of two, some 30 of its 1,024 clocks: 1.03. A "
        "wait of 600 clocks for the load is a matter of when the load is issued.",
        "A thread that stores what it has just asked for waits for it, with however many buffers; "
        "the SM's other block fills that time or does not. What hides the wait is the distance "
        "between a load and its use, and that takes registers, not a second buffer. The second "
        "one costs address arithmetic in every tile, and registers for it, of which there are none "
        "left: fewer instructions are FFMAs, and more FFMAs read all operands from one bank. So "
        "with the load a tile ahead it is one buffer that wins.",
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
        "The 64 stores of A that a block's warps make for a tile take 4 turns each with neither, 2 "
        "with padding, which must keep rows aligned, and 1 with the swizzle: 256, 128 or 64 of "
        "4,096 clocks, beside arithmetic. 1.00 for both.",
        "Shared memory is not what limits this kernel, so what is saved there is not missed. The "
        "swizzle pays with address arithmetic: where padding leaves one base address and "
        "constants, it needs another base for each four steps. That both are a little faster than "
        "padding is not about banks: the compiler places the loads further ahead.",
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
        "A warp of 4 x 8 lanes reads 4 + 8 different quads at a time, in either order, of 2 x 16 "
        "lanes 2 + 16: 12 against 18, of which a clock serves 8. Shared memory has time for both: "
        "1.00.",
        "The code is the same, instruction for instruction; only the addresses differ. Lanes that "
        "read the same quad share it wherever they stand in the warp, so the curve brings nothing "
        "that the rectangle has not brought.",
    ),
    Question(
        "loaders",
        "Half of the block loads A, the other half B",
        SMALL,
        (Setting("all threads load both"), Setting("halves", {"HALVES": 1})),
        "The same loads and stores in all. But A is stored element by element, so its half issues "
        "2 + 8 instructions a tile where everybody issued 2 + 5, and the barrier waits for it: 3 "
        "of 580, 0.99.",
        "Two paths of code with a branch round each load and each store, and registers for both "
        "operands in every thread, since registers are given to all threads alike.",
    ),
    Question(
        "shapes",
        "TM x TN: other shapes of a thread's results",
        SMALL,
        (
            Setting("8 x 8"),
            Setting("4 x 16", {"TM": 4, "TN": 16}),
            Setting("16 x 4", {"TM": 16, "TN": 4}, spills=True),
            # 512 threads take one quad each; RESIDENT 1 leaves them the registers that they need.
            Setting("8 x 4, 512 threads", {"TN": 4, "HALVES": 1, "RESIDENT": 1}),
        ),
        "A step of 8 x 8 is 64 FFMAs and 4 loads, of 4 x 16 and 16 x 4 64 and 5, of 8 x 4 32 and "
        "3: 0.99, 0.99 and 0.97 of the instructions' share.",
        "The square reads the fewest values for its results. The oblong ones also hold 20 values "
        "for a step instead of 16, twice, and two resident blocks leave a thread 128 registers: "
        "16 x 4 spills. Yet it gains, as the compiler has nearly all of its FFMAs share an operand "
        "with the one before ('.reuse'); 4 x 16 gets the order of the source, which runs along its "
        "long side, and no such gain.",
    ),
    Question(
        "stores",
        "Stores between the multiply-adds",
        LARGE,
        (
            Setting("at the end of the tile"),
            Setting("in the middle", {"STORE_AT": 8}),
            Setting("one a step in the second half", {"STORE_AT": 8, "STORE_STEPS": 8}),
        ),
        "The same 8 stores among 2,200 instructions. In the middle they do not hold up the "
        "barrier, some 20 of 4,096 clocks: 1.00.",
        "This idea helps, and more than was predicted. At the end of the tile every warp stores at "
        "once, just where it waits for the barrier and then for the next tile's first values; "
        "between multiply-adds the stores find shared memory idle. It is not that loads are waited "
        "for less: one a step, they are needed sooner ('ahead').",
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
        "A step of 8 x 8 is 64 FFMAs and 4 loads, of 16 x 8 128 and 6: 0.955 against 0.941, so "
        "1.015. Half as many warps are there to hide a wait, so perhaps less.",
        "With 255 registers the compiler chooses freely which register holds what, with 128 it has "
        "none left over: more of the FFMAs of 8 x 8 read three registers of one bank, and more "
        "instructions are moves. This idea helps, and more than the count of loads says.",
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
        "Of the 127 steps from one FFMA to the next, 7 share no operand in the plain order, none "
        "in a serpentine, 31 in the swirl. If each costs a clock: 135 / 128 = 1.05 for the "
        "serpentines, 135 / 159 = 0.85 for the swirl.",
        "The order in the source is a hint: the compiler arranges the FFMAs anew, and decides by "
        "its own lights which operand stays in the reuse cache. '.reuse' says that it kept the "
        "serpentine along m, but of the swirl made something that shares no more than row after "
        "row and is fast all the same; what else differs the columns do not show. `async` keeps "
        "its order by a loop of two steps, and reaches 0.98.",
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
        "At 8192 the 132 blocks at work touch 4 x 128 rows of A and all of B, in groups of 8 rows "
        "1,024 rows and 4,224 columns: 0.6 of the bytes. But the larger figure is 286 MB in 1.4 "
        "ms, a fifteenth of what the memory delivers: 1.00.",
        "In single precision without tensor cores the arithmetic takes so long that the memory "
        "keeps up in any order.",
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
        "A turn from tile to tile, some 60 clocks of waiting and address arithmetic, comes once in "
        "4,096 clocks with BK 16, in 2,048 with 8, in 8,192 with 32: 0.99 and 1.01.",
        "A turn costs more than 60 clocks: all warps wait for the slowest, twice as often with BK "
        "16 as with 32. Written out, BK 32 is a loop of 70 KB, more than the instruction caches "
        "near the schedulers hold, and gains all the same; with 16 steps written out the compiler "
        "moves the loads away from their stores by a loop's length ('ahead') and loses FFMAs.",
    ),
    Question(
        "tma",
        "Bulk tensor copies (TMA) by one thread",
        {},
        (
            Setting("async", source="async.cu"),
            Setting("TMA, A by loads of 8 bytes", {"A_STEPS": 2}, source="tma.cu"),
            Setting("TMA, A by loads of 16 bytes", {"A_STEPS": 4}, source="tma.cu"),
        ),
        "No thread has copies to start, 24 for the 4,096 FFMAs of a tile, nor their addresses to "
        "compute: some 0.02 of the instructions of `async`. A bulk copy cannot transpose, and 8 "
        "rows of A at one k cost more loads than quads of neighbours: 16 for 256 FFMAs in place of "
        "12 by loads of 8 bytes, 24 for 512, as many as before, by 16: 1.00 and 1.02.",
        "With A as [row][k] each row needs a load of its own, and the swizzle, without which they "
        "all meet in the same banks, an address of its own: see FFMA. Loads of 16 bytes bring four "
        "steps of k, which the compiler mixes and thereby loses the order in which FFMAs share "
        "operands: see '.reuse'. Either costs more than the copies did.",
        (4096, 8192),
    ),
)
