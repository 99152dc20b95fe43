"""The ablations on tensor cores: seven ideas for fp16 products by Hopper's warpgroups.

The constants of ``fp16_pairs.cu``:

| constants | meaning |
| :-- | :-- |
| WARPGROUPS, BLOCKS_DOWN, COLS | warpgroups that multiply; rows of each, by 64; columns |
| DEPTH_STAGES | stages in shared memory, each of 32 steps of K |
| A_IN_REGISTERS | with 1 warps load A's rows; with 0 products read them from shared memory |
| CLUSTER_SHARES | no_tile; or tile_of_a, tile_of_b: each of two blocks loads half to both |
| BAND | rows of tiles in a band; blocks go down its columns |
| PERSISTENT | with 1 one block per multiprocessor, for many tiles; with 0 one per tile |
| SMALL_BY_STAGE | with 1 small products precede the large ones of each stage; with 0, of both |
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
    return Setting(name, constants, source="fp16_pairs.cu")


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
            _setting("no cluster"),
            _setting("shared tile of A", CLUSTER_SHARES="tile_of_a"),
            _setting("shared tile of B", CLUSTER_SHARES="tile_of_b", BAND=8),
        ),
        (8192,),
    ),
    Question(
        "persistent",
        "Persistent blocks",
        SQUARE,
        (
            _setting("one block per tile"),
            _setting("one block per multiprocessor", PERSISTENT=1),
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
            _setting("small products of both stages first"),
            _setting("small products of each stage first", SMALL_BY_STAGE=1),
        ),
        (8192,),
    ),
)
