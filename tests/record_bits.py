"""Records the bits of every rung on this machine's GPU: python -m tests.record_bits

Writes tests/data/gpu_bits.json, which tests/test_bits.py compares with the CPU device. Run it on a
GPU when a kernel's arithmetic changes or a rung is added.
"""

import json
from pathlib import Path

from sgemm_kernels import build_info
from sgemm_kernels._catalog import default_device

from . import bits

RECORD = Path(__file__).parent / "data/gpu_bits.json"


def main() -> None:
    gpu = default_device()
    if gpu.kind != "cuda":
        raise SystemExit("no usable GPU: python -m sgemm_kernels info says why")
    record = {
        "device": gpu.model,
        "compute_capability": gpu.compute_capability,
        "multiprocessors": gpu.multiprocessors,
        "csrc_hash": build_info().csrc_hash,
        "digests": {variant: bits.digests(variant, gpu.name) for variant in bits.compared()},
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
