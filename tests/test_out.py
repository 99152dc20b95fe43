"""The argument out is written in place, whatever its layout and whatever it overlaps."""

import itertools

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from sgemm_kernels import run, run_many

from .support import LAYOUTS, SPLIT_FP16, deep, same_bits, uniform

M, N, K = 37, 45, 30
WRITEABLE = [name for name, layout in LAYOUTS.items() if layout.writeable]


def operands(rng, K):
    return uniform(rng, M, K), uniform(rng, K, N), uniform(rng, M, N)


@pytest.mark.parametrize("beta", [0.0, -0.7])
def test_out_is_written_in_place(rung, device, rng, beta):
    A, B, C = operands(rng, deep(rung.name, K))
    expected = run(rung.name, A, B, C=C, beta=beta, device=device)
    for layout in WRITEABLE:
        out = LAYOUTS[layout].place(np.full((M, N), np.nan, np.float32))
        surroundings = out.surroundings()
        result = run(rung.name, A, B, C=C, beta=beta, out=out.matrix, device=device)
        assert result is out.matrix
        assert same_bits(out.matrix.astype(np.float32), expected), layout
        assert out.surroundings() == surroundings, layout


@pytest.mark.parametrize("beta", [0.0, -0.7])
def test_out_is_c(rung, device, rng, beta):
    A, B, C = operands(rng, deep(rung.name, K))
    apart = run(rung.name, A, B, C=C, beta=beta, device=device)
    for layout in WRITEABLE:
        c = LAYOUTS[layout].place(C)
        surroundings = c.surroundings()
        result = run(rung.name, A, B, C=c.matrix, beta=beta, out=c.matrix, device=device)
        assert result is c.matrix
        assert same_bits(c.matrix.astype(np.float32), apart), layout
        assert c.surroundings() == surroundings, layout


def test_c_is_not_written_without_out(rung, device, rng):
    A, B, C = operands(rng, deep(rung.name, K))
    before = C.copy()
    result = run(rung.name, A, B, C=C, beta=1, device=device)
    assert result is not C
    assert same_bits(C, before)


@pytest.mark.parametrize("operand", [0, 1, 2], ids=["A", "B", "C"])
def test_overlap_at_every_offset(device, rng, operand):
    """out slides over the operand's memory, one element at a time."""
    shapes = [(6, 5), (5, 7), (6, 7)]
    size, room = int(np.prod(shapes[operand])), 6 * 7
    for offset in range(size + room + 1):
        values = [uniform(rng, *shape) for shape in shapes]
        memory = uniform(rng, 2 * room + size)
        place = memory[room : room + size].reshape(shapes[operand])
        place[...] = values[operand]
        apart = run("vec4", *values[:2], C=values[2], beta=0.5, device=device)

        values[operand] = place
        out = memory[offset : offset + room].reshape(6, 7)
        after = memory.copy()
        after[offset : offset + room] = apart.ravel()
        run("vec4", *values[:2], C=values[2], beta=0.5, out=out, device=device)
        assert same_bits(memory, after), offset


@pytest.mark.parametrize("transposed", [False, True])
def test_overlap_across_tiles(rung, device, rng, transposed):
    """Large enough that late blocks would read what early blocks wrote."""
    M, K = 200, max(200, deep(rung.name, 0))
    B = uniform(rng, K, M)
    for shift in (0, 129) if rung.name in SPLIT_FP16 else (0, 1, 64, 129, 4000):
        memory = uniform(rng, M * K + 4000)
        A = memory[: M * K].reshape(M, K)
        out = memory[shift : shift + M * M].reshape(M, M)
        if transposed:
            out = out.T
        apart = run(rung.name, A.copy(), B, device=device)
        assert same_bits(run(rung.name, A, B, out=out, device=device), apart), shift


def test_out_is_both_inputs(rung, device, rng):
    n = max(150, deep(rung.name, 0))
    A = uniform(rng, n, n)
    apart = run(rung.name, A.copy(), A.copy(), C=A.copy(), beta=1, device=device)
    run(rung.name, A, A, C=A, beta=1, out=A, device=device)
    assert same_bits(A, apart)


def test_interleaved_but_disjoint(rung, device, rng):
    """Writes the even columns of an array from its odd ones."""
    k = deep(rung.name, 40)
    memory = uniform(rng, 40, 2 * k)
    A, out = memory[:, 1::2], memory[:, :80:2]
    A_before, B = A.copy(), uniform(rng, k, 40)
    run(rung.name, A, B, out=out, device=device)
    assert same_bits(out, run(rung.name, A_before, B, device=device))
    assert same_bits(A, A_before)


@pytest.mark.parametrize("strides", [(0, 4), (4, 0), (4, 4), (8, 4), (4, 8), (-4, 4)], ids=str)
def test_self_overlapping_out_is_refused(device, strides):
    memory = np.full(100, 5, np.float32)
    out = as_strided(memory[50:], (4, 4), strides)
    square = np.ones((4, 4), np.float32)
    with pytest.raises(ValueError, match="out share memory"):
        run("vec4", square, square, out=out, device=device)
    assert np.all(memory == 5)


def test_self_overlap_is_checked_by_bytes():
    """Tries every pair of small strides; some of them interleave without sharing an element."""
    A, B = np.ones((3, 5), np.float32), np.ones((5, 4), np.float32)
    memory = np.empty(64, np.float32)
    refused = 0
    for strides in itertools.product(range(-17, 18), range(-13, 14)):
        out = as_strided(memory[32:], (3, 4), strides)
        first_bytes = np.add.outer(np.arange(3) * strides[0], np.arange(4) * strides[1]).ravel()
        overlaps = len(set(np.add.outer(first_bytes, np.arange(4)).ravel())) < 3 * 4 * 4
        try:
            run("naive", A, B, out=out, device="cpu")
        except ValueError:
            refused += 1
            assert overlaps, strides
        else:
            assert not overlaps, strides
            assert np.all(out == 5)
    assert 0 < refused < 35 * 27


@pytest.mark.parametrize("strides", [(2**62, 2**62), (2**62, 4), (-(2**63), 4)], ids=str)
def test_strides_beyond_all_addresses_are_refused(strides):
    out = as_strided(np.empty(100, np.float32), (5, 4), strides)
    A, B = np.ones((5, 3), np.float32), np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="out share memory"):
        run("naive", A, B, out=out, device="cpu")


def test_one_row_of_any_stride_does_not_overlap_itself(rung, device, rng):
    A, B = uniform(rng, 1, deep(rung.name, 9)), uniform(rng, deep(rung.name, 9), 4)
    out = as_strided(np.empty(4, np.float32), (1, 4), (0, 4))
    run(rung.name, A, B, out=out, device=device)
    assert same_bits(out, run(rung.name, A, B, device=device))


def test_read_only_out_is_refused_before_anything_runs(device, rng):
    A, B, _ = operands(rng, K)
    out = np.full((M, N), 5, np.float32)
    view = out[:]
    view.flags.writeable = False
    with pytest.raises(ValueError, match=r"\bout\b.*read-only"):
        run("vec4", A, B, out=view, device=device)
    assert np.all(out == 5)


def shares_a_byte(*arrays):
    """Whether two elements share a byte, by listing all bytes."""
    offsets = [np.arange(4)]
    for array in arrays:
        first = np.array(array.ctypes.data)
        for length, stride in zip(array.shape, array.strides, strict=True):
            first = np.add.outer(first, np.arange(length) * stride)
        offsets.append(np.add.outer(first, np.arange(4)).ravel())
    every = np.concatenate(offsets[1:])
    return len(np.unique(every)) < len(every)


def random_view(rng, memory, axes):
    """A view with short axes and strides that often interleave."""
    shape = rng.integers(1, 5, axes)
    strides = rng.choice([1, 2, 3, 5, 7, 10, 12, 28], axes) * rng.choice([4, -4, 2, 6], axes)
    return as_strided(memory[memory.size // 2 :], tuple(shape), tuple(int(x) for x in strides))


def test_self_overlap_of_batches_is_decided_exactly(rng):
    memory = np.zeros(4096, np.float32)
    views = [as_strided(memory, (3, 6, 1), (28, 8, 4))]  # axes that interleave
    views += [random_view(rng, memory, axes) for axes in (3, 3, 4, 5) for _ in range(150)]
    refused = 0
    for out in views:
        A = np.ones((*out.shape[:-1], 1), np.float32)
        B = np.ones((*out.shape[:-2], 1, out.shape[-1]), np.float32)
        if shares_a_byte(out):
            refused += 1
            with pytest.raises(ValueError, match="of out share memory"):
                run("naive", A, B, out=out, device="cpu")
        else:
            out[...] = 0
            run("naive", A, B, out=out, device="cpu")
            assert np.all(out == 1)
    assert 50 < refused < len(views) - 50


def test_an_overlap_that_takes_long_to_decide(rng):
    """The strides are like the sizes of a knapsack's items."""
    strides = tuple(4 * int(x) for x in rng.integers(2**40, 2**41, 20))
    out = as_strided(np.zeros(1, np.float32), (2,) * 20, strides)
    A, B = np.ones((*(2,) * 19, 1), np.float32), np.ones((*(2,) * 18, 1, 2), np.float32)
    with pytest.raises(ValueError, match="of out may share memory"):
        run("naive", A, B, out=out, device="cpu")


def test_overlap_of_two_outs_is_decided_exactly(rng):
    memory = np.zeros(4096, np.float32)
    one = np.ones((1, 1), np.float32)
    refused = tried = 0
    while tried < 300:
        outs = [random_view(rng, memory[:512], 2) for _ in range(2)]
        shift = int(rng.integers(-3, 4))
        outs[1] = as_strided(memory[256 + shift :], outs[1].shape, outs[1].strides)
        if any(map(shares_a_byte, outs)):
            continue
        tried += 1
        As = [np.broadcast_to(one, (out.shape[0], 1)) for out in outs]
        Bs = [np.broadcast_to(one, (1, out.shape[1])) for out in outs]
        if shares_a_byte(*outs):
            refused += 1
            with pytest.raises(ValueError, match="may share memory"):
                run_many("naive", As, Bs, out=outs, device="cpu")
        else:
            memory[...] = 0
            run_many("naive", As, Bs, out=outs, device="cpu")
            assert all(np.all(out == 1) for out in outs)
    assert 30 < refused < 270
