"""A rung is bit-identical in every run, with any threads and workers."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from sgemm_kernels import run

from .support import same_bits, uniform


@pytest.fixture
def product(rung, device, rng):
    A, B, C = uniform(rng, 260, 67), uniform(rng, 67, 131), uniform(rng, 260, 131)
    return lambda: run(rung.name, A, B, C=C, alpha=1.1, beta=-0.7, device=device)


def test_in_100_runs(product):
    first = product()
    assert all(same_bits(product(), first) for _ in range(99))


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


def test_identical_calls_of_any_variant(variant, device, rng):
    A, B = uniform(rng, 130, 131), uniform(rng, 131, 129)
    first = run(variant.name, A, B, device=device)
    assert all(same_bits(run(variant.name, A, B, device=device), first) for _ in range(20))
