"""A rung is bit-identical in every run, with any threads and workers."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from sgemm_kernels import run, variants

from .support import MULTIPROCESSORS, SPLIT_FP16, deep, same_bits, uniform


@pytest.fixture
def product(rung, device, rng):
    M, N = (130, 35) if rung.name in SPLIT_FP16 else (260, 131)
    K = deep(rung.name, 67)
    A, B, C = uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)
    return lambda: run(rung.name, A, B, C=C, alpha=1.1, beta=-0.7, device=device)


def test_in_100_runs(product, rung, device):
    """Or in 25, if the CPU device emulates tensor cores."""
    first = product()
    runs = 25 if device == "cpu" and rung.name in SPLIT_FP16 else 100
    assert all(same_bits(product(), first) for _ in range(runs - 1))


def test_from_any_thread(product):
    first = product()
    with ThreadPoolExecutor(1) as elsewhere:
        assert same_bits(elsewhere.submit(product).result(), first)


def test_with_any_number_of_workers(product):
    """The CPU device starts one worker for each core that it may use."""
    first = product()
    cores = os.sched_getaffinity(0)
    try:
        for count in range(1, len(cores) + 1):
            os.sched_setaffinity(0, sorted(cores)[:count])
            assert same_bits(product(), first)
    finally:
        os.sched_setaffinity(0, cores)


def test_identical_calls_of_a_variant_that_chooses(device, variants_on, rng, monkeypatch):
    """A library and `auto` promise no more than the same bits for identical calls."""
    monkeypatch.setenv(MULTIPROCESSORS, "132")
    A, B = uniform(rng, 130, 131), uniform(rng, 131, 129)
    for variant in variants():
        if variant.file is None and variant.name in variants_on[device]:
            first = run(variant.name, A, B, device=device)
            for _ in range(20):
                assert same_bits(run(variant.name, A, B, device=device), first), variant.name
