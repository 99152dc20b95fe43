"""Records the bits of every rung on this machine's GPU: python -m tests.record_bits

Writes tests/data/gpu_bits.json, which tests/test_bits.py compares with the CPU device. Run it on a
GPU when a kernel's arithmetic changes or a rung is added.
"""

from pathlib import Path
from typing import Any

from sgemm_kernels import build_info
from sgemm_kernels._catalog import default_device
from sgemm_kernels.measuring.results_file import read_json, write_json

from . import bits

RECORD = Path(__file__).parent / "data/gpu_bits.json"


def main() -> None:
    gpu = default_device()
    if gpu.kind != "cuda":
        raise SystemExit("no usable GPU: python -m sgemm_kernels info says why")
    head = {
        "device": gpu.model,
        "compute_capability": gpu.compute_capability,
        "multiprocessors": gpu.multiprocessors,
        "csrc_hash": build_info().csrc_hash,
    }
    write(head, {variant: bits.digests(variant, gpu.name) for variant in bits.compared()})


def write(head: dict[str, Any], digests: dict[str, dict[str, str]]) -> None:
    """Writes a row for each case, with the digest of each variant that has it."""
    cases = dict.fromkeys(case for found in digests.values() for case in found)
    rows = [
        {"case": case} | {name: found[case] for name, found in digests.items() if case in found}
        for case in cases
    ]
    write_json(RECORD, {**head, "rows": rows})


def recorded(variant: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The record, and the variant's digest of each case."""
    record = read_json(RECORD)
    return record, {row["case"]: row[variant] for row in record["rows"] if variant in row}


if __name__ == "__main__":
    main()
