"""sgemm_kernels.jax: products of JAX arrays on JAX's CPU device and, if it has one, on its GPU.

The operands are small integers, so every sum is exact and results are compared bit by bit."""

import ctypes
import functools
import importlib
import itertools
import os
import re
import subprocess
import tempfile
import types
from pathlib import Path

import numpy as np
import pytest

import sgemm_kernels
from sgemm_kernels import _core, run

from .support import MULTIPROCESSORS, ending, printed_by, python, same_bits, uniform

# Before the first import of JAX: four CPU devices, and no memory pool that takes most of a GPU.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
jax = pytest.importorskip("jax", "0.8.2", reason="sgemm_kernels.jax needs JAX")
with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
    patch.setenv("SGEMM_KERNELS_CACHE", folder)  # not the user's
    matmul = importlib.import_module("sgemm_kernels.jax").matmul
    gram = importlib.import_module("sgemm_kernels.jax").gram

from jax.experimental import checkify, jet  # noqa: E402

jnp = jax.numpy
P, NamedSharding = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
ON_GPU = jax.default_backend() == "gpu"
M, N, K, BATCH = 24, 40, 16, 4


@pytest.fixture(autouse=True)
def cache(custom_cache):
    """The handler is compiled into a folder of the tests."""
    return custom_cache


@pytest.fixture(autouse=True, params=["cpu", *(["gpu"] if ON_GPU else [])])
def platform(request):
    """JAX's platform, whose first device is JAX's default."""
    with jax.default_device(jax.devices(request.param)[0]):
        yield request.param


def zeros(*shape):
    return np.zeros(shape, np.float32)


def integers(rng, *shape):
    """A float32 array of small integers."""
    return rng.integers(-4, 5, shape).astype(np.float32)


@pytest.fixture
def operands(rng):
    return integers(rng, M, K), integers(rng, K, N)


def weighted(multiply, weights):
    """A scalar function of a product, whose gradients are exact."""
    return lambda A, B: jnp.sum(multiply(A, B) ** 2 * weights)


def reference(A, B):
    """The product of JAX itself, with all bits of float32."""
    return jnp.matmul(A, B, precision="highest")


def same(found, expected):
    return same_bits(np.asarray(found), np.asarray(expected))


# ---------------------------------------------------------------------------- products


@pytest.mark.parametrize("name", ["auto", "vec4", "simt"])
def test_the_result_is_that_of_run(rng, platform, name):
    A, B = uniform(rng, 65, 300), uniform(rng, 300, 70)
    device = {"cpu": "cpu", "gpu": _core._GPU_KIND}[platform]
    expected = run(name, A, B, device=device)
    assert same(matmul(A, B, variant=name), expected)
    result = matmul(jnp.asarray(A), jnp.asarray(B), variant=name)
    assert isinstance(result, jax.Array)
    assert result.dtype == jnp.float32
    assert result.devices() == {jax.devices(platform)[0]}
    assert same(result, expected)


def test_jit(operands):
    A, B = operands
    assert same(jax.jit(matmul)(A, B), A @ B)
    compiled = jax.jit(matmul, static_argnames="variant")
    assert same(compiled(A, B, variant="vec4"), A @ B)
    transposed = jax.jit(lambda A, B: 2 * matmul(B.T, A.T).T)
    assert same(transposed(A, B), 2 * (A @ B))


def test_the_example_of_the_page():
    page = (Path(__file__).parent.parent / "docs/use/jax.md").read_text(encoding="utf-8")
    code, output = re.search(r"```python\n(.*?)```\n```text\n(.*?)```", page, re.DOTALL).groups()
    assert printed_by(code) == output.strip()


def test_abstract_values():
    shapes = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in ((M, K), (K, N))]
    result = jax.eval_shape(matmul, *shapes)
    assert result.shape == (M, N)
    assert result.dtype == jnp.float32
    assert "sgemm_kernels_matmul" in jax.jit(matmul).lower(*shapes).as_text()


@pytest.mark.parametrize(("rows", "depth", "cols"), [(0, K, N), (M, 0, N), (M, K, 0)])
def test_empty_products(rows, depth, cols):
    A, B = np.ones((rows, depth), np.float32), np.ones((depth, cols), np.float32)
    assert same(matmul(A, B), A @ B)


def test_a_product_inside_other_transformations(operands):
    A, _ = operands
    S = jnp.asarray(A.T @ A % 3)

    def powers(multiply, start):
        step = jax.checkpoint(lambda product, _: (multiply(product, S) % 5, None))
        return jnp.sum(jax.lax.scan(step, start, None, 3)[0])

    found, expected = (jax.value_and_grad(powers, 1)(each, S) for each in (matmul, reference))
    assert same(found[0], expected[0])
    assert same(found[1], expected[1])


# ---------------------------------------------------------------------------- gradients


def test_gradients(rng, operands):
    weights = integers(rng, M, N)
    for argument in (0, 1):
        found, expected = (
            jax.jit(jax.grad(weighted(each, weights), argument))(*operands)
            for each in (matmul, reference)
        )
        assert same(found, expected)


def test_gradients_read_transposed_operands_in_place(rng, operands):
    gradient = jax.grad(weighted(matmul, integers(rng, M, N)), (0, 1))
    assert "transpose[" not in str(jax.make_jaxpr(gradient)(*operands))


def test_forward_mode_and_second_derivatives(rng):
    A, B, weights = integers(rng, 3, 5), integers(rng, 5, 4), integers(rng, 3, 4)
    for argument in (0, 1):
        for derivative in (jax.hessian, jax.jacfwd, jax.jacrev):
            found, expected = (
                derivative(weighted(each, weights), argument)(A, B) for each in (matmul, reference)
            )
            assert same(found, expected)
    found, expected = (jax.jvp(each, (A, B), (A + 1, B - 1)) for each in (matmul, reference))
    assert all(map(same, found, expected))


# ---------------------------------------------------------------------------- JAX's settings


SETTINGS = {
    "without jit": jax.disable_jit,
    "debug_nans": lambda: jax.debug_nans(True),
    "debug_infs": lambda: jax.debug_infs(True),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_for_debugging(operands, setting):
    A, B = operands
    stacks = np.stack([A, A + 1]), np.stack([B, B - 1])
    squares = np.stack([B @ B.T, B @ B.T]) % 3
    calls = {
        "matmul": lambda f: f(A, B),
        "jit": lambda f: jax.jit(f)(A, B),
        "grad": lambda f: jax.grad(lambda A: jnp.sum(f(A, B) ** 2))(A),
        "jvp": lambda f: jax.jvp(f, (A, B), (A, B)),
        "vmap": lambda f: jax.vmap(f)(*stacks),
        "scan": lambda f: jax.lax.scan(lambda c, s: (f(c, s) % 5, None), A, squares)[0],
    }
    with SETTINGS[setting]():
        for name, call in calls.items():
            found, expected = (jax.tree.leaves(call(each)) for each in (matmul, reference))
            assert all(map(same, found, expected)), name


def test_not_a_number_is_found(operands):
    A, B = operands
    with_nan, with_inf = A.copy(), A.copy()
    with_nan[0, 0], with_inf[0, 0] = np.nan, np.inf
    ones = np.ones_like(B)
    for setting, bad, word in (
        (jax.debug_nans, with_nan, "nan"),
        (jax.debug_infs, with_inf, "inf"),
    ):
        for multiply in (matmul, jax.jit(matmul), lambda A, B: jax.vmap(matmul)(A[None], B[None])):
            with setting(True), pytest.raises(FloatingPointError, match=word):
                multiply(bad, ones)
    checked = checkify.checkify(matmul, errors=checkify.nan_checks)
    assert "nan generated by primitive: sgemm_matmul" in checked(with_nan, ones)[0].get()
    assert checked(A, B)[0].get() is None


def test_taylor_series(operands):
    A, B = map(jnp.asarray, operands)
    series = [A, A + 1, A], [B, B - 1, B]
    for function in (lambda f, A, B: f(A, B), lambda f, A, B: f(f(A, B) ** 2, B.T)):
        found, expected = (
            jax.tree.leaves(jet.jet(functools.partial(function, each), (A, B), series))
            for each in (matmul, reference)
        )
        for one, other in zip(found, expected, strict=True):  # jet divides by factorials
            assert np.allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


# ---------------------------------------------------------------------------- batches

AXES = [pair for pair in itertools.product((None, 0, 1, 2), repeat=2) if pair != (None, None)]


def stacked(rng, matrix, axis):
    """A batch of matrices like this one along an axis; only the matrix if it is None."""
    if axis is None:
        return matrix
    return np.stack([matrix, *(integers(rng, *matrix.shape) for _ in range(BATCH - 1))], axis)


@pytest.mark.parametrize(("in_a", "in_b"), AXES)
def test_vmap(rng, operands, in_a, in_b):
    A, B = (stacked(rng, *pair) for pair in zip(operands, (in_a, in_b), strict=True))
    weights = integers(rng, M, N)
    for out in (0, 1, 2):
        found, expected = (jax.vmap(each, (in_a, in_b), out)(A, B) for each in (matmul, reference))
        assert same(found, expected)
    for argument in (0, 1):
        gradients = [jax.grad(weighted(each, weights), argument) for each in (matmul, reference)]
        found, expected = (jax.vmap(each, (in_a, in_b))(A, B) for each in gradients)
        assert same(found, expected)
        found, expected = (
            jax.grad(lambda A, B, each=each: jnp.sum(jax.vmap(each, (in_a, in_b))(A, B)), argument)(
                A, B
            )
            for each in (weighted(matmul, weights), weighted(reference, weights))
        )
        assert same(found, expected)


@pytest.mark.parametrize(
    ("outer", "inner"), [((0, None), (0, 0)), ((0, 0), (None, 0)), ((0, None), (None, 0))]
)
def test_nested_vmap(rng, operands, outer, inner):
    def batched(matrix, axes):
        return integers(
            rng,
            *(3 if n else BATCH for n, axis in enumerate(axes) if axis is not None),
            *matrix.shape,
        )

    A, B = (batched(operands[n], (outer[n], inner[n])) for n in (0, 1))
    weights = integers(rng, M, N)
    twice = [
        jax.vmap(jax.vmap(weighted(each, weights), inner), outer) for each in (matmul, reference)
    ]
    found, expected = (each(A, B) for each in twice)
    assert same(found, expected)
    for argument in (0, 1):
        found, expected = (
            jax.grad(lambda A, B, each=each: jnp.sum(each(A, B)), argument)(A, B) for each in twice
        )
        assert same(found, expected)


def test_a_shared_operand_makes_one_product_of_the_batch(rng, operands):
    A, B = operands
    for axes, batch in (((0, None), (stacked(rng, A, 0), B)), ((None, 1), (A, stacked(rng, B, 1)))):
        jaxpr = str(jax.make_jaxpr(jax.vmap(matmul, axes))(*batch))
        assert jaxpr.count("sgemm_matmul") == 1
        assert "broadcast_in_dim" not in jaxpr
        (shape,) = re.findall(r"f32\[(\d+,\d+)\] = sgemm_matmul", jaxpr)
        assert shape == (f"{BATCH * M},{N}" if axes[0] == 0 else f"{M},{BATCH * N}")


SHAPES = [
    ((5,), (5,)),
    ((5,), (5, 4)),
    ((3, 5), (5,)),
    ((5,), (2, 5, 4)),
    ((2, 3, 5), (5,)),
    ((2, 3, 5), (5, 4)),
    ((3, 5), (2, 5, 4)),
    ((2, 3, 5), (2, 5, 4)),
    ((1, 3, 5), (2, 5, 4)),
    ((1, 3, 5), (1, 5, 4)),
    ((1, 3, 5), (5, 4)),
    ((2, 1, 3, 5), (6, 5, 4)),
    ((2, 1, 7, 3, 5), (6, 1, 5, 4)),
    ((0, 3, 5), (5, 4)),
    ((0, 3, 5), (1, 5, 4)),
    ((2, 3, 0), (0, 4)),
    ((2, 0, 5), (5,)),
]


@pytest.mark.parametrize(("of_a", "of_b"), SHAPES)
def test_the_shapes_of_matmul(rng, of_a, of_b):
    """Products and both gradients, also with one more dimension by vmap of either operand."""
    A, B = integers(rng, *of_a), integers(rng, *of_b)
    found = jax.jit(matmul)(A, B)
    assert found.shape == (A @ B).shape
    assert same(found, A @ B)
    with jax.disable_jit():
        assert same(matmul(A, B), A @ B)

    def gradients(multiply):
        return jax.grad(lambda A, B: jnp.sum(multiply(A, B) ** 2), (0, 1))

    def equal(found, expected):  # JAX's outer products of vectors may be -0
        return same(found + 0, expected + 0)

    assert all(map(equal, *(gradients(each)(A, B) for each in (matmul, reference))))
    for axes in ((0, None), (None, -1)):
        pair = [stacked(rng, *each) for each in zip((A, B), axes, strict=True)]
        for of in (lambda each: each, gradients):
            results = (jax.vmap(of(each), axes)(*pair) for each in (matmul, reference))
            assert all(map(equal, *map(jax.tree.leaves, results)))


@pytest.fixture
def runtime_calls(monkeypatch):
    """A list of the numbers of products in each call that the handler makes of the runtime."""
    counts = []
    library = importlib.import_module("sgemm_kernels._jax_handler").registered()
    pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    address = pointer_of(_core._c_multiply_typed, b"sgemm_kernels.multiply_typed")
    # Place and status as addresses, which pass through unchanged.
    pointer, stacked_matrix = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int64)
    prototype = ctypes.CFUNCTYPE(
        *(ctypes.c_int, ctypes.c_char_p, pointer, ctypes.c_int64),
        *(ctypes.c_float, *stacked_matrix, *stacked_matrix),
        *(ctypes.c_float, *stacked_matrix, *stacked_matrix),
        pointer,
    )
    products = prototype(address)

    def counted(variant, place, count, *others):
        counts.append(count)
        return products(variant, place, count, *others)

    replacement = prototype(counted)
    library.sgemm_jax_set_call(ctypes.cast(replacement, pointer))
    yield counts
    library.sgemm_jax_set_call(pointer(address))


def gradient_of(argument):
    return lambda A, B: jax.grad(lambda A, B: jnp.sum(matmul(A, B) ** 2), argument)(A, B)


CALLS = {
    "vmap of both": (jax.vmap(matmul), (BATCH, M, K), (BATCH, K, N), [BATCH]),
    "vmap of A": (jax.vmap(matmul, (0, None)), (BATCH, M, K), (K, N), [1]),
    "vmap of B": (jax.vmap(matmul, (None, 0)), (M, K), (BATCH, K, N), [BATCH]),
    "vmap of B's columns": (jax.vmap(matmul, (None, 1)), (M, K), (K, BATCH, N), [1]),
    "vmap of vectors": (jax.vmap(matmul, (None, 0)), (M, K), (BATCH, K), [1]),
    "vmap of a broadcast batch": (
        jax.vmap(matmul), (3, BATCH, M, K), (3, 1, K, N), [3]
    ),
    "two dimensions": (matmul, (3, BATCH, M, K), (3, BATCH, K, N), [3 * BATCH]),
    "A broadcast": (matmul, (M, K), (3, BATCH, K, N), [3 * BATCH]),
    "A broadcast, of dimensions 1": (matmul, (1, 1, M, K), (3, BATCH, K, N), [3 * BATCH]),
    "B broadcast": (matmul, (3, BATCH, M, K), (K, N), [1]),
    "vectors": (matmul, (3, BATCH, M, K), (K,), [1]),
    "one of two dimensions broadcast": (matmul, (1, BATCH, M, K), (3, BATCH, K, N), [BATCH] * 3),
    "gradient of A": (gradient_of(0), (BATCH, M, K), (BATCH, K, N), [BATCH, BATCH]),
    "gradient of B": (gradient_of(1), (BATCH, M, K), (BATCH, K, N), [BATCH, BATCH]),
    "gradient of a shared B": (gradient_of(1), (BATCH, M, K), (K, N), [1, 1]),
    "gradient of a shared A": (gradient_of(0), (M, K), (BATCH, K, N), [BATCH, BATCH]),
}  # fmt: skip
"""Functions, the shapes of their operands, and the numbers of products in the runtime's calls."""


@pytest.mark.parametrize("name", CALLS)
def test_a_batch_is_one_call(rng, runtime_calls, name):
    """One call of the handler for each product of the program, and one of the runtime in it."""
    function, of_a, of_b, expected = CALLS[name]
    A, B = integers(rng, *of_a), integers(rng, *of_b)
    program = jax.jit(function).lower(A, B).compile()
    text, products = program.as_text(), 2 if name.startswith("gradient") else 1
    assert text.count('custom_call_target="sgemm_kernels_matmul"') == products
    assert products > 1 or "broadcast(" not in text  # nor is an operand copied
    jax.block_until_ready(program(A, B))
    assert runtime_calls == expected


# ---------------------------------------------------------------------------- 16 bits

FLOATS = ("float32", "float16", "bfloat16")
PAIRS = [pair for pair in itertools.product(FLOATS, FLOATS) if pair != ("float32", "float32")]


@pytest.mark.parametrize(("of_a", "of_b"), PAIRS)
def test_operands_of_16_bits(rng, of_a, of_b):
    """The result is float32, and each gradient is rounded once, to its operand's dtype."""
    weights = integers(rng, M, N)
    A, B = stacked(rng, integers(rng, M, K), 0), integers(rng, K, N)
    a, b = jnp.asarray(A, of_a), jnp.asarray(B, of_b)
    for product in (matmul, jax.jit(matmul)):
        assert same(product(a[0], b), A[0] @ B)
        assert same(product(a, b), A @ B)
        assert same(product(b.T, a.mT), B.T @ A.mT)
    assert same(jax.vmap(matmul)(a, jnp.stack([b] * len(a))), A @ B)
    assert same(jax.vmap(matmul, (None, 0))(b.T, a.mT), B.T @ A.mT)
    for argument in (0, 1):
        found = jax.jit(jax.grad(weighted(matmul, weights), argument))(a, b)
        exact = jax.grad(weighted(reference, weights), argument)(A, B)
        assert found.dtype == (of_a, of_b)[argument]
        assert same(found.astype("float32"), exact.astype(found.dtype).astype("float32"))
    result, tangent = jax.jvp(matmul, (a, b), (2 * a, -b))
    assert same(result, A @ B)
    assert same(tangent, A @ B)
    second = jax.hessian(lambda each: jnp.sum(matmul(each, b) ** 2))(a[0, :2])
    assert second.dtype == of_a


@pytest.mark.parametrize(("of_a", "of_b"), PAIRS)
def test_a_named_variant_multiplies_float32_copies(rng, of_a, of_b):
    a, b = jnp.asarray(uniform(rng, 65, 300), of_a), jnp.asarray(uniform(rng, 300, 70), of_b)
    copies = a.astype("float32"), b.astype("float32")
    assert same(matmul(a, b, variant="vec4"), matmul(*copies, variant="vec4"))


def test_sharded_operands_of_16_bits(rng, operands, mesh):
    """A router: bfloat16 activations, float32 weights."""
    weights = integers(rng, M, N)
    A = jax.device_put(jnp.asarray(operands[0], "bfloat16"), NamedSharding(mesh, P("x")))
    B = jax.device_put(operands[1], NamedSharding(mesh, P()))
    mapped = jax.shard_map(matmul, mesh=mesh, in_specs=(P("x"), P()), out_specs=P("x"))
    for product in (matmul, mapped):
        assert same(jax.jit(product)(A, B), operands[0] @ operands[1])
        for argument, dtype in enumerate(("bfloat16", "float32")):
            found = jax.jit(jax.grad(weighted(product, weights), argument))(A, B)
            exact = jax.grad(weighted(reference, weights), argument)(*operands)
            assert found.dtype == dtype
            assert same(found.astype("float32"), exact.astype(dtype).astype("float32"))


# ---------------------------------------------------------------------------- refused calls


@pytest.mark.parametrize(
    ("A", "B", "error", "message"),
    [
        (np.ones((2, 3)), None, TypeError, r"A has dtype float64.*A\.astype\('float32'\)"),
        (None, np.ones((3, 2), np.int32), TypeError, "B has dtype int32, .* float16 and bfloat16"),
        ([[1.0]], None, TypeError, "A must be an array, not list"),
        (
            types.SimpleNamespace(dtype="float32 of others", shape=(2, 3)),
            *(None, TypeError, r"A has dtype float32 of others, .*: pass jax.numpy.asarray\(A, "),
        ),
        (np.float32(1), None, ValueError, r"A has no dimensions.*pass A\.reshape\(1, 1\)"),
        (None, zeros(4), ValueError, "A's 3 columns must match B's 4 elements: pass arrays with"),
        (zeros(2), None, ValueError, "A's 2 elements must match B's 3 rows: pass arrays with"),
        (zeros(5, 4), None, ValueError, r"4 columns must match B's 3 rows: pass arrays with A\.sh"),
        (zeros(3, 4), None, ValueError, r"A's 4 columns must match B's 3 rows: pass A\.T"),
        (zeros(2, 3, 4), None, ValueError, r"A's 4 columns must match B's 3 rows: pass A\.mT"),
        (None, zeros(2, 4, 3), ValueError, r"3 columns must match B's 4 rows: pass B\.mT"),
        (zeros(2, 2, 3), zeros(4, 3, 2), ValueError, "before the last two cannot be broadcast"),
    ],
)
def test_refused_operands(A, B, error, message):
    A = np.ones((2, 3), np.float32) if A is None else A
    B = np.ones((3, 2), np.float32) if B is None else B
    with pytest.raises(error, match=message):
        matmul(A, B)
    if not isinstance(A, (list, types.SimpleNamespace)) and A.dtype != np.float64:
        with pytest.raises(error, match=message):
            jax.jit(matmul)(A, B)


def test_the_advice_of_a_refusal_works(operands):
    A, B = operands
    for unusable in (
        A.astype(np.float64),
        A.astype(np.int32),
        A.astype(np.complex64),
        jnp.asarray(A, jnp.float8_e4m3fn),
        jnp.asarray(A, jnp.float8_e5m2),
        A.tolist(),
    ):
        with pytest.raises(TypeError) as caught:
            matmul(unusable, B)
        advice = str(caught.value).rpartition(": pass ")[2]
        assert same(matmul(eval(advice, {"jax": jax, "A": unusable}), B), A @ B)
    stack = jnp.asarray(A.T)[None]
    for left, right in ((A, B.T), (A.T, B), (stack, B)):
        with pytest.raises(ValueError, match="must match") as caught:
            matmul(left, right)
        advice = str(caught.value).rpartition(": pass ")[2]
        fixed = {"A": left, "B": right}
        fixed[advice[0]] = eval(advice, fixed.copy())
        assert same(matmul(**fixed).reshape(M, N), A @ B)


def test_a_ref_is_refused_with_its_value_as_advice(operands):
    A, B = operands
    ref = jax.new_ref(jnp.asarray(A))

    @jax.jit
    def of_a_ref(B):
        return matmul(jax.new_ref(jnp.asarray(A)), B)

    for call in (lambda: matmul(ref, B), lambda: of_a_ref(B)):
        with pytest.raises(TypeError, match=r"A is a jax.Ref, .*: pass A\[\.\.\.\]"):
            call()
    assert same(matmul(ref[...], B), matmul(A, B))


def test_refused_variants(operands):
    with pytest.raises(ValueError, match="there is no variant 'fast': the variants are naive, "):
        matmul(*operands, variant="fast")
    with pytest.raises(TypeError, match="variant must be a str, not int"):
        matmul(*operands, variant=3)


def test_a_failure_while_the_product_runs(operands, platform, monkeypatch):
    if platform != "cpu":
        pytest.skip("the reference variant runs on a GPU")
    monkeypatch.setattr(sgemm_kernels._cublas, "load", lambda: None)
    with pytest.raises(jax.errors.JaxRuntimeError, match="does not run on the CPU device"):
        matmul(*operands, variant=_core._REFERENCE)


# ---------------------------------------------------------------------------- several devices


@pytest.fixture(params=["Auto", "Explicit"])
def mesh(request, platform):
    """A mesh of 2 x 2 CPU devices, or of all GPUs in one row."""
    devices = np.array(jax.devices(platform))
    shape = (2, 2) if platform == "cpu" else (len(devices), 1)
    kind = getattr(jax.sharding.AxisType, request.param)
    return jax.sharding.Mesh(devices.reshape(shape), ("x", "y"), axis_types=(kind, kind))


def collectives(function, *arrays):
    text = jax.jit(function).lower(*arrays).compile().as_text()
    return set(re.findall(r"\b(all-\w+|collective-\w+|reduce-scatter)(?=-start\(|\()", text))


SPECS = {
    "rows and columns": (P("x", None), P(None, "y"), P("x", "y"), set()),
    "rows": (P(("x", "y"), None), P(), P(("x", "y")), set()),
    "columns": (P(), P(None, "y"), P(None, "y"), set()),
    "K": (P(None, "x"), P("x", None), P(), {"all-reduce"}),
    "rows and K": (P("x", "y"), P("y", None), P("x"), {"all-reduce"}),
    "K of one operand": (P(None, "x"), P(), P(), {"all-reduce"}),
    "one axis twice": (P("x", None), P(None, "x"), None, None),
    "nothing": (P(), P(), P(), set()),
}


@pytest.mark.parametrize("name", SPECS)
def test_each_device_computes_its_shard(rng, operands, mesh, platform, name):
    of_a, of_b, of_result, messages = SPECS[name]
    A, B = (
        jax.device_put(matrix, NamedSharding(mesh, spec))
        for matrix, spec in zip(operands, (of_a, of_b), strict=True)
    )
    result = jax.jit(matmul)(A, B)
    assert same(result, operands[0] @ operands[1])
    assert same(matmul(A, B), result)
    if of_result is not None:
        assert result.sharding.is_equivalent_to(NamedSharding(mesh, of_result), 2)
    if platform == "cpu" and messages is not None:
        assert collectives(matmul, A, B) == messages
    weights = integers(rng, M, N)
    for argument in (0, 1):
        found = jax.jit(jax.grad(weighted(matmul, weights), argument))(A, B)
        assert same(found, jax.grad(weighted(reference, weights), argument)(*operands))


@pytest.mark.skipif(jax.__version_info__ < (0, 10), reason="JAX divides the mesh axis, and fails")
def test_a_k_that_the_devices_do_not_divide_evenly(rng, platform):
    mesh = jax.sharding.Mesh(np.array(jax.devices(platform)), ("z",))
    A, B = integers(rng, 8, 8), integers(rng, 6, 8)
    divided = jax.device_put(A, NamedSharding(mesh, P(None, "z")))
    sliced = jax.jit(lambda A, B: matmul(A[:, 1:-1] * 2, B))
    assert same(sliced(divided, B), 2 * (A[:, 1:-1] @ B))


@pytest.mark.parametrize("check", [True, False])
def test_shard_map(rng, operands, mesh, check):
    A = jax.device_put(operands[0], NamedSharding(mesh, P("x")))
    B = jax.device_put(operands[1], NamedSharding(mesh, P()))
    weights = integers(rng, M, N)
    for names in ({"x", "y"}, {"x"}):
        mapped = jax.shard_map(
            matmul,
            mesh=mesh,
            in_specs=(P("x"), P()),
            out_specs=P("x"),
            check_vma=check,
            axis_names=names,
        )
        assert same(jax.jit(mapped)(A, B), operands[0] @ operands[1])
        for argument in (0, 1):
            found = jax.jit(jax.grad(weighted(mapped, weights), argument))(A, B)
            assert same(found, jax.grad(weighted(reference, weights), argument)(*operands))


def test_a_gradient_inside_shard_map_is_summed_over_the_devices(operands, mesh):
    A = jax.device_put(operands[0], NamedSharding(mesh, P("x")))
    B = jax.device_put(operands[1], NamedSharding(mesh, P()))

    def gradient(A, B):
        return jax.grad(lambda B: jax.lax.psum(jnp.sum(matmul(A, B) ** 2), "x"))(B)

    mapped = jax.shard_map(gradient, mesh=mesh, in_specs=(P("x"), P()), out_specs=P())
    found = jax.jit(mapped)(A, B)
    assert same(found, jax.grad(weighted(reference, 1.0), 1)(*operands))


@pytest.mark.parametrize(("in_a", "in_b"), [(0, 0), (0, None), (None, 0), (1, None), (None, 1)])
def test_a_divided_batch(rng, operands, mesh, in_a, in_b):
    arrays = [stacked(rng, *pair) for pair in zip(operands, (in_a, in_b), strict=True)]
    specs = [P() if axis is None else P(*(None,) * axis, "x") for axis in (in_a, in_b)]
    A, B = (
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in zip(arrays, specs, strict=True)
    )
    mapped, expected = (jax.vmap(each, (in_a, in_b)) for each in (matmul, reference))
    assert same(jax.jit(mapped)(A, B), expected(*arrays))
    if in_a != 1 or mesh.axis_types[0] == jax.sharding.AxisType.Explicit:
        assert collectives(mapped, A, B) == set()
    weights = integers(rng, M, N)
    for argument in (0, 1):
        found = jax.jit(jax.grad(weighted(mapped, weights), argument))(A, B)
        assert same(found, jax.grad(weighted(expected, weights), argument)(*arrays))


# ---------------------------------------------------------------------------- the handler


def test_the_handler_is_compiled_once(tmp_path):
    log = tmp_path / "log"
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec c++ "$@"\n')
    compiler.chmod(0o700)
    code = """
        import numpy as np
        from sgemm_kernels.jax import matmul
        A = np.ones((3, 3), np.float32)
        assert (np.asarray(matmul(A, A)) == 3).all()
    """
    for _ in range(2):
        settings = {"CXX": str(compiler), "SGEMM_KERNELS_CACHE": str(tmp_path / "cache")}
        process = python(code, JAX_PLATFORMS="cpu", **settings)
        assert process.returncode == 0, ending(process)
    calls = log.read_text().splitlines()
    assert sum("matmul.c" in call for call in calls) == 1
    assert len(list((tmp_path / "cache").glob("*.so"))) == 1


def test_the_handler_compiles_without_warnings():
    source = Path(sgemm_kernels.__file__).parent / "csrc/frontends/jax/matmul.c"
    flags = ["-xc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    command = ["c++", *flags, f"-I{jax.ffi.include_dir()}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_a_compiler(tmp_path):
    code = """
        import numpy as np, sgemm_kernels
        from sgemm_kernels.jax import matmul
        try:
            matmul(np.ones((3, 3), np.float32), np.ones((3, 3), np.float32))
        except sgemm_kernels.NoCompilerError as error:
            print(error)
    """
    settings = {"CXX": "/nowhere/c++", "SGEMM_KERNELS_CACHE": str(tmp_path)}
    process = python(code, JAX_PLATFORMS="cpu", **settings)
    assert process.stdout.startswith("CXX=/nowhere/c++ cannot be run"), ending(process)
    assert "RuntimeWarning: sgemm_kernels.jax cannot multiply yet" in process.stderr


def test_an_exported_program_in_a_new_process(operands, tmp_path, cache):
    """The import registers the handler, from a filled cache even without a compiler."""
    A, B = operands
    shapes = [jax.ShapeDtypeStruct(each.shape, jnp.float32) for each in operands]
    check = jax.export.DisabledSafetyCheck.custom_call("sgemm_kernels_matmul")
    exported = jax.export.export(jax.jit(matmul), platforms=["cpu"], disabled_checks=[check])
    program, data = tmp_path / "program", tmp_path / "operands.npz"
    program.write_bytes(exported(*shapes).serialize())
    np.savez(data, A=A, B=B, expected=A @ B)
    importlib.import_module("sgemm_kernels._jax_handler")._handler()  # fills the cache
    code = f"""
        from pathlib import Path
        import jax, numpy as np
        import sgemm_kernels.jax
        program = jax.export.deserialize(bytearray(Path({str(program)!r}).read_bytes()))
        with np.load({str(data)!r}) as kept:
            result = np.asarray(program.call(kept["A"], kept["B"]))
            print((result == kept["expected"]).all())
    """
    settings = {"CXX": "/nowhere/c++", "SGEMM_KERNELS_CACHE": str(cache)}
    assert printed_by(code, JAX_PLATFORMS="cpu", **settings) == "True"


@pytest.mark.skipif(not ON_GPU, reason="JAX has no GPU here")
def test_products_between_command_buffers(operands):
    """XLA captures the other kernels of the loop into CUDA graphs."""
    A, B = (jnp.asarray(each) for each in operands)

    def chain(multiply, A, B):
        for _ in range(8):
            A = multiply(multiply(A, B) % 5, B.T) % 5
        return A

    compiled = jax.jit(chain, static_argnums=0)
    expected = chain(reference, A, B)
    assert all(same(compiled(matmul, A, B), expected) for _ in range(4))


def test_gram_is_exactly_symmetric(rng, monkeypatch):
    """Also within transformations: the handler sees one array twice."""
    monkeypatch.setenv(MULTIPROCESSORS, "1")
    A = uniform(rng, 2, 150, 300)
    for multiply, X in (
        (gram, A[0]),
        (jax.jit(lambda X: gram(X * 2)), A[0]),
        (gram, A),
        (jax.vmap(gram), A),
        (jax.vmap(gram, 1), A.swapaxes(0, 1)),
        (jax.jit(jax.vmap(gram, 2)), np.moveaxis(A, 0, 2)),
    ):
        result = np.asarray(multiply(X))
        assert same_bits(result, result.mT)


def test_gram_is_a_product(rng):
    A, weights = integers(rng, BATCH, M, K), integers(rng, M, M)
    assert same(gram(A), reference(A, A.mT))
    assert same(gram(A.astype(jnp.bfloat16), variant="naive"), reference(A, A.mT))
    found, expected = (
        jax.grad(lambda X, multiply=multiply: jnp.sum(multiply(X) * weights))(A)
        for multiply in (gram, lambda X: reference(X, X.mT))
    )
    assert same(found, expected)
    with pytest.raises(ValueError, match=r"A is \(3,\), but gram.*A\.reshape\(1, -1\)"):
        gram(jnp.ones(3))
    with pytest.raises(ValueError, match="no variant"):
        gram(A, variant="none")
