"""Many calls, including refused ones, leak nothing."""

import contextlib
import gc
import sys

import numpy as np

from sgemm_kernels import run

from .support import resident_bytes, uniform

CALLS = 2000


def test_nothing_is_left_behind(rung, device, rng):
    A, B, C = uniform(rng, 65, 64), uniform(rng, 64, 66), uniform(rng, 65, 66)
    # No kernel takes these layouts, so the extension makes copies.
    shuffled = [np.repeat(values, 2, axis=1)[:, ::2] for values in (A, B, C)]
    out = np.empty((65, 66), np.float32)
    wide = np.empty((65, 132), np.float32)
    kept = [A, B, C, out, wide, *shuffled]

    def calls(count):
        for index in range(count):
            match index % 6:
                case 0:
                    run(rung.name, A, B, device=device)
                case 1:
                    run(
                        rung.name,
                        *shuffled[:2],
                        C=shuffled[2],
                        beta=1,
                        out=wide[:, ::2],
                        device=device,
                    )
                case 2:
                    run(rung.name, A, B, C=out, beta=0.5, out=out, device=device)
                case 3:
                    with contextlib.suppress(ValueError):
                        run(rung.name, shuffled[0], A, device=device)
                case 4:
                    with contextlib.suppress(ValueError):
                        run(rung.name, A, B, device="gpu")
                case 5:
                    with contextlib.suppress(TypeError):
                        wrong = B.astype(np.float64)
                        run(rung.name, A, B, C=C, beta=1, out=wrong, device=device)

    calls(CALLS // 4)
    gc.collect()
    counts = [sys.getrefcount(array) for array in kept]
    blocks = sys.getallocatedblocks()
    # A leak grows in every round. Memory that threads keep stops growing.
    for _ in range(3):
        resident = resident_bytes()
        calls(CALLS)
        gc.collect()
        grown = resident_bytes() - resident
        if grown < CALLS // 10 * out.nbytes // 2:
            break
    assert [sys.getrefcount(array) for array in kept] == counts
    # A leak of one object a call, or of one result in ten calls, would far exceed these limits.
    assert sys.getallocatedblocks() - blocks < CALLS // 10
    assert grown < CALLS // 10 * out.nbytes // 2
