"""Shapes, strides and scalars of every kind, chosen by hypothesis."""

import numpy as np
import pytest

pytest.importorskip("hypothesis")

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sgemm_kernels import run
from sgemm_kernels._accuracy import expect

from .support import deep, same_bits

SIZES = st.integers(0, 70)
STEPS = st.sampled_from([1, 1, 2, 3, -1, -2])
SCALARS = st.one_of(
    st.sampled_from([0.0, 1.0, -1.0, 1e-40, 1e300]),
    st.floats(-4, 4),
    st.floats(allow_nan=True, allow_infinity=True),
)


@st.composite
def matrices(draw, rows, columns):
    """Random values of this shape, as a view with any steps, order and offset."""
    row_step, column_step = draw(STEPS), draw(STEPS)
    order = draw(st.sampled_from("CF"))
    row_skip, column_skip = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    room = (row_skip + rows * abs(row_step), column_skip + columns * abs(column_step))
    # Positive, so that cancellation never decides the sign of an infinity from a special scalar.
    memory = np.asarray(rng.uniform(0.1, 1, room), np.float32, order=order)
    view = memory[row_skip:, column_skip:][::row_step, ::column_step]
    if draw(st.booleans()):
        view.flags.writeable = False
    assert view.shape == (rows, columns)
    return view


@st.composite
def problems(draw, name):
    M, N, K = draw(SIZES), draw(SIZES), deep(name, draw(SIZES))
    A, B, C = draw(matrices(M, K)), draw(matrices(K, N)), draw(matrices(M, N))
    return A, B, C, draw(SCALARS), draw(SCALARS)


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(data=st.data(), into_out=st.booleans())
def test_any_product(variant, device, data, into_out):
    A, B, C, alpha, beta = data.draw(problems(variant.name))
    before = [values.copy() for values in (A, B, C)]
    out = np.full(C.shape, np.nan, np.float32) if into_out else None
    result = run(variant.name, A, B, C=C, alpha=alpha, beta=beta, out=out, device=device)
    assert (result is out) == into_out
    assert expect(A, B, C=C, alpha=alpha, beta=beta).worst_share(result) <= 1
    assert all(same_bits(a, b) for a, b in zip((A, B, C), before, strict=True))
