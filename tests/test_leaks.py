"""Many calls, including refused ones, leak nothing."""

import contextlib
import gc
import sys

import numpy as np

from sgemm_kernels import run

from .support import SPLIT_FP16, deep, resident_bytes, uniform


def test_nothing_is_left_behind(rung, device, rng):
    K = deep(rung.name, 64)
    most_calls = 150 if device == "cpu" and rung.name in SPLIT_FP16 else 2000
    A, B, C = uniform(rng, 65, K), uniform(rng, K, 66), uniform(rng, 65, 66)
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

    calls(most_calls // 4)
    gc.collect()
    counts = [sys.getrefcount(array) for array in kept]
    blocks = sys.getallocatedblocks()
    # A leak grows in every round. Memory that threads keep stops growing.
    for _ in range(3):
        resident = resident_bytes()
        calls(most_calls)
        gc.collect()
        grown = resident_bytes() - resident
        if grown < most_calls // 10 * out.nbytes // 2:
            break
    assert [sys.getrefcount(array) for array in kept] == counts
    # A leak of one object a call, or of one result in ten calls, would exceed these limits. The
    # interpreter's own caches grow by some dozens.
    assert sys.getallocatedblocks() - blocks < max(100, most_calls // 10)
    assert grown < most_calls // 10 * out.nbytes // 2
