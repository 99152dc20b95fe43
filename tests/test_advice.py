"""Executes the advice of error messages: each call that a message suggests must work.

test_tensors.py does the same with tensors of PyTorch."""

import re

import numpy as np
import pytest

from sgemm_kernels import prepare, run, run_many

ONES = np.ones((4, 4), np.float32)
ONES.flags.writeable = False  # no test may change it


class Matrix:
    """A matrix of another library, without any protocol of arrays but one method."""

    def __init__(self, method):
        setattr(self, method, lambda: ONES.astype(np.float64))


class Arrayed:
    def __array__(self, dtype=None, copy=None):
        return ONES.astype(dtype or np.float64)


# Operands that run() refuses, and that hold ones if a conversion is possible.
UNUSABLE = {
    "list": ONES.tolist(),
    "tuple": tuple(map(tuple, ONES.tolist())),
    "memoryview": memoryview(ONES.astype(np.float64)),
    "__array__": Arrayed(),
    "toarray": Matrix("toarray"),
    "todense": Matrix("todense"),
    "float64": ONES.astype(np.float64),
    "uint16": ONES.astype(np.uint16),
    "int8": ONES.astype(np.int8),
    "bool": ONES.astype(bool),
    "complex64": ONES.astype(np.complex64),
    "object": ONES.astype(object),
    "swapped float64": ONES.astype(">f8"),
    "masked": np.ma.masked_array(ONES.copy()),
    "masked float64": np.ma.masked_array(ONES.astype(np.float64)),
    "None": None,
    "float": 1.0,
    "numpy scalar": np.float32(1),
    "str": "ones",
    "bytes": b"ones",
    "object()": object(),
    "dict": {},
    "set": set(),
}


def advised(error):
    """The expression that a message says to pass."""
    return str(error.value).rpartition(": pass ")[2].removeprefix("a matrix, such as ")


@pytest.mark.parametrize("kind", UNUSABLE)
def test_operands(kind):
    for name in ("A", "B", "C", "out"):
        if name in ("C", "out") and UNUSABLE[kind] is None:
            continue
        arguments = {"A": ONES, "B": ONES, "C": ONES, "out": ONES.copy(), name: UNUSABLE[kind]}
        with pytest.raises(TypeError, match=f"(?s){name} .*: pass ") as caught:
            run("naive", **arguments, beta=1, device="cpu")
        advice = advised(caught)
        arguments[name] = eval(advice, {"numpy": np, **arguments})
        if arguments[name].shape != (4, 4):  # nothing could be converted
            assert kind in (
                "None",
                "float",
                "numpy scalar",
                "str",
                "bytes",
                "object()",
                "dict",
                "set",
            )
            arguments = {key: np.ones((2, 2), np.float32) for key in arguments}
        result = run("naive", **arguments, beta=1, device="cpu")
        assert np.all(result == len(result) + 1)


def test_prepared_matrices():
    prepared = prepare(ONES, device="cpu")
    for name in ("A", "C", "out"):
        arguments = {"A": ONES, "B": ONES, "C": ONES, name: prepared}
        message = f"{name} is a prepared matrix.*pass the array that prepare\\(\\) was given"
        with pytest.raises(TypeError, match=message):
            run("auto", **arguments, beta=1, device="cpu")
        lists = {"As": [ONES], "Bs": [ONES], "Cs": [ONES]}
        lists[name if name == "out" else f"{name}s"] = [prepared]
        with pytest.raises(TypeError, match=message):
            run_many("auto", **lists, beta=1, device="cpu")
    with pytest.raises(TypeError, match=r"run_many\(\) does not take: .* or call run\(\)"):
        run_many("auto", [ONES], [prepared], device="cpu")
    with pytest.raises(TypeError, match=r"prepared matrix already: pass it to run\(\) as B"):
        prepare(prepared)
    with pytest.raises(
        ValueError, match="pass 'auto', 'waves', 'fused' or 'invariant', or the matrix itself"
    ):
        run("naive", ONES, prepared, device="cpu")
    with pytest.raises(ValueError, match="omit device"):
        run("auto", ONES, prepared, device="cuda:0")
    assert np.all(run("auto", ONES, prepared) == 4)


WIDE, TALL, ROW = np.ones((3, 4), np.float32), np.ones((4, 3), np.float32), np.ones(4, np.float32)
STACK, POINT = np.ones((2, 3, 4), np.float32), np.ones((), np.float32)
READ_ONLY = np.frombuffer(bytes(36), np.float32).reshape(3, 3)

# Calls that are refused, and the code after "pass" in their messages, which mends them.
CALLS = [
    ({"A": WIDE, "B": WIDE}, {"B": "B.T"}),
    ({"A": TALL, "B": TALL}, {"B": "B.T"}),
    ({"A": TALL, "B": np.ones((4, 5), np.float32)}, {"A": "A.T"}),
    ({"A": STACK, "B": STACK}, {"B": "B.mT"}),
    ({"A": POINT, "B": POINT}, {"A": "A.reshape(1, 1)", "B": "B.reshape(1, 1)"}),
    ({"A": WIDE, "B": TALL, "C": np.ones(3, np.float32)}, {"C": "numpy.broadcast_to(C, (3, 3))"}),
    (
        {"A": WIDE, "B": TALL[:, :2], "C": np.ones(3, np.float32)},
        {"C": "numpy.broadcast_to(C[:, None], (3, 2))"},
    ),
    ({"A": WIDE, "B": TALL, "C": WIDE}, {"C": "numpy.zeros((3, 3), numpy.float32)"}),
    ({"A": WIDE, "B": TALL, "out": WIDE}, {"out": "numpy.empty((3, 3), numpy.float32)"}),
    ({"A": WIDE, "B": TALL, "out": READ_ONLY}, {"out": "numpy.empty_like(out)"}),
    (
        {"A": WIDE, "B": TALL, "out": np.broadcast_to(ROW[:3], (3, 3)).view()},
        {"out": "numpy.empty_like(out)"},
    ),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_shapes(number):
    arguments, mended = CALLS[number]
    arguments = dict(arguments)
    beta = {"beta": 1} if "C" in arguments else {}
    for name, advice in mended.items():
        with pytest.raises(ValueError, match=re.escape(advice)):
            run("naive", **arguments, **beta, device="cpu")
        arguments[name] = eval(advice, {"numpy": np, **arguments})
    assert run("naive", **arguments, **beta, device="cpu").dtype == np.float32


def test_scalars_and_names():
    calls = [
        (lambda: run("vec5", ONES, ONES, device="cpu"), "did you mean 'vec4'"),
        (lambda: run(4, ONES, ONES, device="cpu"), "call run('auto', A, B)"),
        (lambda: run("vec4", ONES, ONES, beta=1, device="cpu"), "pass C, or beta=0"),
        (lambda: run("vec4", ONES, ONES, alpha="2", device="cpu"), "pass a float"),
        (lambda: run("vec4", ONES, ONES, alpha=10**400, device="cpu"), "pass float('inf')"),
        (lambda: run("vec4", ONES, ONES, stream=1, device="cpu"), "omit stream"),
        (lambda: run_many("vec4", ONES, ONES, device="cpu"), "list(A)"),
        (lambda: run_many("vec4", [STACK], [TALL], device="cpu"), "list(A)"),
        (lambda: prepare(ROW), "B.reshape(-1, 1)"),
    ]
    for call, advice in calls:
        with pytest.raises((TypeError, ValueError), match=re.escape(advice)):
            call()
    assert run("vec4", ONES, ONES, alpha=float("inf"), device="cpu").max() == np.inf
    assert run("vec4", ONES, ONES, beta=0, device="cpu").max() == 4
    assert len(run_many("vec4", list(STACK), TALL, device="cpu")) == 2
    assert prepare(ROW.reshape(-1, 1), device="cpu").shape == (4, 1)
