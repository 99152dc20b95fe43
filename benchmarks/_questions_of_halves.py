"""What the ablations ask of products of halves by Hopper's warpgroups: seven ideas more.

The constants of ``halves.cu``:

| constants | meaning |
| :-- | :-- |
| WARPGROUPS, BLOCKS_DOWN, COLS | those that multiply; of each, how many times 64 rows; columns |
| DEPTH_STAGES | the tiles of 32 of the depth that shared memory holds |
| A_IN_REGISTERS | with 1 warps load A's rows; with 0 products read them from shared memory too |
| CLUSTER_SHARES | no_tile; or tile_of_a, tile_of_b: of two blocks each brings half to both |
| BAND | the rows of tiles that blocks run down before they take the next column |
| PERSISTENT | with 1 there is a block a multiprocessor, for many tiles; with 0 a block a tile |
| SMALL_BY_STAGE | with 1 small products come before the large ones of each stage, not of both |
"""

from __future__ import annotations

from _questions import Constants, Question, Setting

SQUARE: Constants = {
    "WARPGROUPS": 2,
    "BLOCKS_DOWN": 1,
    "COLS": 128,
    "DEPTH_STAGES": 6,
    "A_IN_REGISTERS": 0,
    "CLUSTER_SHARES": "no_tile",
    "BAND": 16,
    "PERSISTENT": 0,
    "SMALL_BY_STAGE": 0,
}


def _setting(name: str, **constants: int | str) -> Setting:
    return Setting(name, constants, source="halves.cu")


QUESTIONS = (
    Question(
        "tiles",
        "Larger tiles",
        SQUARE,
        (
            _setting("128 x 128"),
            _setting("128 x 192", COLS=192, DEPTH_STAGES=5),
            _setting("256 x 128", BLOCKS_DOWN=2, DEPTH_STAGES=4),
        ),
        (4096, 8192),
    ),
    Question(
        "warpgroups",
        "Three warpgroups that multiply",
        SQUARE,
        (
            _setting("two, 128 x 128"),
            _setting("three, 192 x 128", WARPGROUPS=3, DEPTH_STAGES=5),
        ),
        (4096, 8192),
    ),
    Question(
        "registers",
        "A in registers",
        SQUARE,
        (
            _setting("A from shared memory"),
            _setting("A in registers", A_IN_REGISTERS=1),
        ),
        (8192,),
    ),
    Question(
        "cluster",
        "A cluster of two blocks that share a tile",
        SQUARE,
        (
            _setting("each block by itself"),
            _setting("they share A's", CLUSTER_SHARES="tile_of_a"),
            _setting("they share B's", CLUSTER_SHARES="tile_of_b", BAND=8),
        ),
        (8192,),
    ),
    Question(
        "persistent",
        "Persistent blocks",
        SQUARE,
        (
            _setting("a block a tile"),
            _setting("a block a multiprocessor", PERSISTENT=1),
        ),
        (4096, 8192),
    ),
    Question(
        "bands",
        "Lower and higher bands of tiles",
        SQUARE,
        (
            _setting("bands of 16"),
            _setting("bands of 8", BAND=8),
            _setting("bands of 32", BAND=32),
        ),
        (8192,),
    ),
    Question(
        "small",
        "Small products by stage",
        SQUARE,
        (
            _setting("those of both stages first"),
            _setting("those of each stage first", SMALL_BY_STAGE=1),
        ),
        (8192,),
    ),
)
