"""Matrix products of JAX arrays, computed by this package's kernels.

>>> import jax, sgemm_kernels.jax
>>> A = jax.numpy.ones((3, 2))
>>> sgemm_kernels.jax.matmul(A, A.T).sum()
Array(18., dtype=float32)

``gram`` multiplies an array by its own transpose. Both work under ``jax.jit``, ``jax.grad``,
``jax.vmap`` and the other transformations, on NVIDIA GPUs and on JAX's CPU device. The first import
compiles a small C handler with this machine's C++ compiler and the headers of the installed jaxlib.
Later ones find it in the cache folder.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

try:
    import jax
    from jax import numpy as jnp
    from jax._src import checkify, dispatch
    from jax.experimental import jet
    from jax.experimental.custom_partitioning import custom_partitioning
    from jax.extend.core import Primitive
    from jax.interpreters import ad, batching, mlir
    from jax.lax import pcast
    from jax.sharding import NamedSharding, PartitionSpec
except ImportError as error:
    raise ImportError(
        f"sgemm_kernels.jax needs JAX 0.8.2 or newer ({error}): pip install -U jax, or, for an "
        "NVIDIA GPU, pip install -U 'jax[cuda13]'"
    ) from error

from ._jax_checks import check_matrices, check_operand, check_shapes, check_variant
from ._jax_handler import TARGET, register_at_import, registered

__all__ = ["gram", "matmul"]

_Shape: TypeAlias = Sequence[int]
_Names: TypeAlias = tuple[Any, ...]
_Spec: TypeAlias = tuple[Any, ...]


def matmul(A: Any, B: Any, *, variant: str = "auto") -> jax.Array:
    """Compute ``A @ B`` in single precision with one kernel variant.

    Parameters
    ----------
    A : array of float32, float16 or bfloat16, shape (K,), (M, K) or (..., M, K)
        A JAX array, or a NumPy array. A vector is one row, and the result has no dimension M.
    B : array of float32, float16 or bfloat16, shape (K,), (K, N) or (..., K, N)
        The same. A vector is one column, and the result has no dimension N.
    variant : str
        A name from `sgemm_kernels.variants`. Under ``jax.jit`` it must be static.

    Returns
    -------
    jax.Array of float32, shape (..., M, N)
        Within the error bound that `sgemm_kernels.run` states, for the exact values of the
        operands. The dimensions before the last two are a batch of matrices. Those of A and B are
        broadcast together, as in `jax.numpy.matmul`, without copies.

    Raises
    ------
    TypeError
        An operand has another dtype, or is no array, or `variant` is not a str.
    ValueError
        An operand has no dimensions, the shapes do not fit, or there is no such variant.
    sgemm_kernels.NoCompilerError
        This machine has no C++ compiler.
    sgemm_kernels.CompileError
        The handler does not compile with the headers of the installed jaxlib.
    sgemm_kernels.UnsupportedVariantError
        The variant needs a library that is missing.
    jax.errors.JaxRuntimeError
        The product failed when it ran: the variant cannot run on that device, or the device is out
        of memory or failed.
    """
    check_variant(variant)
    for name, operand in (("A", A), ("B", B)):
        check_operand(name, operand)
    check_shapes(A.shape, B.shape)
    registered()
    product: jax.Array = _multiply_now(A, B, variant=variant)
    return product


def gram(A: Any, *, variant: str = "auto") -> jax.Array:
    """Compute ``A @ A.mT`` in single precision: the inner products of all rows of A.

    JAX copies a transposed array, so `matmul` does not see that ``A.mT`` has the same elements.
    With the variants 'auto' and 'simt', `gram` computes half of the results and stores each twice,
    so that the result is exactly symmetric.

    Parameters
    ----------
    A : array of float32, float16 or bfloat16, shape (..., M, K)
        A JAX array, or a NumPy array. The dimensions before the last two are a batch of matrices.
    variant : str
        A name from `sgemm_kernels.variants`. Under ``jax.jit`` it must be static.

    Returns
    -------
    jax.Array of float32, shape (..., M, M)
        Within the error bound that `sgemm_kernels.run` states. If the matrices themselves are
        divided over several devices, all results are computed, and they need not be exactly
        symmetric.

    Raises
    ------
    TypeError, ValueError and others
        As `matmul`. A must have at least two dimensions.
    """
    check_variant(variant)
    check_operand("A", A)
    check_matrices("A", A.shape)
    registered()
    product: jax.Array = _gram_now(A, variant=variant)
    return product


# ------------------------------------------------------------------ the primitive

# Multiplies the matrices in the last two dimensions of its operands, which have equally many
# dimensions. Each operand may be transposed in memory. A batch dimension of 1 is broadcast.
_matmul = Primitive("sgemm_matmul")


@dataclass(frozen=True)
class _Options:
    """The parameters of the primitive: which operands are transposed, and the kernel variant."""

    transpose_a: bool
    transpose_b: bool
    variant: str

    def shape(self, a: _Shape, b: _Shape) -> _Shape:
        """The shape of the result."""
        batch = (y if x == 1 else x for x, y in zip(a[:-2], b[:-2], strict=True))
        return (*batch, a[self.row_axis], b[self.col_axis])

    @property
    def row_axis(self) -> int:
        """The axis of A that holds the rows of the product."""
        return -1 if self.transpose_a else -2

    @property
    def depth_axes(self) -> tuple[int, int]:
        """The axes of A and of B that the product sums over."""
        return -3 - self.row_axis, -3 - self.col_axis

    @property
    def col_axis(self) -> int:
        """The axis of B that holds the columns of the product."""
        return -2 if self.transpose_b else -1

    def with_transposes(self, transpose_a: bool, transpose_b: bool) -> "_Options":
        return _Options(transpose_a, transpose_b, self.variant)


def _multiply(A: Any, B: Any, options: _Options) -> Any:
    return _matmul.bind(*_alike_in_manual_axes(A, B), options=options)


def _alike_in_manual_axes(A: Any, B: Any) -> tuple[Any, Any]:
    """Marks both operands as varying over the mesh axes of `jax.shard_map` that either varies
    over. JAX then sums the gradient of an operand that all devices share over the devices."""
    axes = [_varying(jax.typeof(each)) for each in (A, B)]
    if axes[0] == axes[1]:
        return A, B
    A, B = (
        pcast(each, tuple((axes[0] | axes[1]) - own), to="varying")
        for each, own in zip((A, B), axes, strict=True)
    )
    return A, B


def _varying(aval: Any) -> frozenset[Any]:
    """The mesh axes of `jax.shard_map` that a value varies over."""
    axes: frozenset[Any] = (
        aval.manual_axis_type.varying
        if hasattr(aval, "manual_axis_type")
        else aval.vma  # before JAX 0.10
    )
    return axes


def _multiply_any(A: Any, B: Any, variant: str) -> Any:
    """The product of operands with any shapes that `matmul` accepts. Each dimension of a batch is a
    `jax.vmap`, whose rule chooses how to compute it."""
    batch = jnp.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    # A vector B is a row in memory, so that a batch of vectors is one matrix.
    multiply = functools.partial(_multiply, options=_Options(False, B.ndim == 1, variant))
    lacking = tuple(axis for axis, each in ((-2, A), (-1, B)) if each.ndim == 1)
    A, B = (each.reshape(1, -1) if each.ndim == 1 else each for each in (A, B))
    for axis, length in enumerate(reversed(batch), 3):
        mapped = [each.ndim >= axis and each.shape[-axis] == length for each in (A, B)]
        multiply = jax.vmap(multiply, tuple(0 if each else None for each in mapped))
    A, B = (_without_broadcast(each, batch) for each in (A, B))
    return jnp.squeeze(multiply(A, B), lacking)


def _without_broadcast(operand: Any, batch: _Shape) -> Any:
    """Removes the dimensions of length 1 that are longer in the batch."""
    own = operand.shape[:-2]
    pairs = zip(own, batch[len(batch) - len(own) :], strict=True)
    return jnp.squeeze(operand, tuple(axis for axis, (x, y) in enumerate(pairs) if x != y))


def _multiply_itself(A: Any, variant: str) -> Any:
    return _multiply(A, A, _Options(False, True, variant))


_multiply_now = jax.jit(_multiply_any, static_argnames="variant", inline=True)
_gram_now = jax.jit(_multiply_itself, static_argnames="variant", inline=True)
# As JAX's own primitives, which it compiles even where jax.jit is disabled.
_matmul.def_impl(functools.partial(dispatch.apply_primitive, _matmul))


def _abstract(a: Any, b: Any, *, options: _Options) -> Any:
    shape = options.shape(a.shape, b.shape)
    sharding = a.sharding if b.sharding.mesh.empty else b.sharding
    if not sharding.mesh.empty:
        specs = _Specs.chosen(options, a, b, ())
        sharding = NamedSharding(sharding.mesh, PartitionSpec(*specs.result))
    return a.update(shape=shape, dtype=jnp.dtype(jnp.float32), sharding=sharding, weak_type=False)


_matmul.def_abstract_eval(_abstract)


# ------------------------------------------------------------------ gradients


def _gradient_a(cotangent: Any, A: Any, B: Any, *, options: _Options) -> Any:
    if options.transpose_a:
        gradient = _multiply(B, cotangent, options.with_transposes(options.transpose_b, True))
    else:
        gradient = _multiply(cotangent, B, options.with_transposes(False, not options.transpose_b))
    return _as_operand(gradient, A.aval)


def _gradient_b(cotangent: Any, A: Any, B: Any, *, options: _Options) -> Any:
    if options.transpose_b:
        gradient = _multiply(cotangent, A, options.with_transposes(True, options.transpose_a))
    else:
        gradient = _multiply(A, cotangent, options.with_transposes(not options.transpose_a, False))
    return _as_operand(gradient, B.aval)


def _as_operand(gradient: Any, aval: Any) -> Any:
    """Sums a gradient over the operand's broadcast dimensions, and makes it an array of the
    operand's dtype and sharding."""
    pairs = zip(gradient.shape, aval.shape, strict=True)
    axes = tuple(axis for axis, (ours, theirs) in enumerate(pairs) if ours != theirs)
    gradient = jnp.sum(gradient, axes, keepdims=True) if axes else gradient
    gradient = gradient.astype(aval.dtype)
    found = jax.typeof(gradient).sharding
    if _padded(found.spec, gradient.ndim) == _padded(aval.sharding.spec, gradient.ndim):
        return gradient
    mesh = found.mesh if aval.sharding.mesh.empty else aval.sharding.mesh
    return jax.sharding.reshard(gradient, NamedSharding(mesh, aval.sharding.spec))


ad.defbilinear(_matmul, _gradient_a, _gradient_b)
# Not as an item: the documentation is built without JAX, with an object that has none.
jet.jet_rules.__setitem__(_matmul, functools.partial(jet._bilinear_taylor_rule, _matmul))


# What checkify.nan_checks finds.
checkify.error_checks.__setitem__(_matmul, functools.partial(checkify.nan_error_check, _matmul))

# ------------------------------------------------------------------ batches


def _batch(
    operands: tuple[Any, Any], axes: tuple[Any, Any], *, options: _Options
) -> tuple[Any, int]:
    """The rule of `jax.vmap`: returns the products and the axis of the batch in them."""
    A, B = operands
    a, b = axes
    if A is B and a == b:  # of gram(): the handler must see one buffer
        A = jnp.moveaxis(A, a, 0)
        return _multiply(A, A, options), 0
    if a is not None and b is not None:
        return _multiply(jnp.moveaxis(A, a, 0), jnp.moveaxis(B, b, 0), options), 0
    if a is not None:
        rows = B.ndim + options.row_axis + (a <= B.ndim + options.row_axis)
        if _can_merge(A, a, rows):
            product = _multiply(_merged(A, a, rows), B, options)
            return _split(product, B.ndim - 2, A, a, rows)
        return _multiply(jnp.moveaxis(A, a, 0), jnp.expand_dims(B, 0), options), 0
    cols = A.ndim + options.col_axis + (b <= A.ndim + options.col_axis)
    if _can_merge(B, b, cols):
        product = _multiply(A, _merged(B, b, cols), options)
        return _split(product, A.ndim - 1, B, b, cols)
    return _multiply(jnp.expand_dims(A, 0), jnp.moveaxis(B, b, 0), options), 0


def _can_merge(array: Any, batch: int, other: int) -> bool:
    """Whether the two axes are neighbours on one device, so that they can be one axis without a
    copy."""
    spec = jax.typeof(array).sharding.spec
    return abs(batch - other) == 1 and not any(
        axis < len(spec) and spec[axis] for axis in (batch, other)
    )


def _merged(array: Any, batch: int, other: int) -> Any:
    first = min(batch, other)
    length = math.prod(array.shape[first : first + 2])
    return array.reshape(*array.shape[:first], length, *array.shape[first + 2 :])


def _split(product: Any, axis: int, array: Any, batch: int, other: int) -> tuple[Any, int]:
    """Undoes `_merged` in an axis of the product. Also returns the axis of the batch."""
    first = min(batch, other)
    shape = (*product.shape[:axis], *array.shape[first : first + 2], *product.shape[axis + 1 :])
    return product.reshape(shape), axis + (batch > other)


batching.primitive_batchers.__setitem__(_matmul, _batch)


# ------------------------------------------------------------------ lowering, and several devices


@dataclass(frozen=True)
class _Specs:
    """The mesh axes that divide each dimension: of A and of B as they are in memory, and of the
    result. Each device multiplies its parts. The products are then summed over `depth`, the axes
    that divide K."""

    A: _Spec
    B: _Spec
    result: _Spec
    depth: _Names

    @classmethod
    def chosen(cls, options: _Options, a: Any, b: Any, result: _Spec) -> "_Specs":
        """Chooses from how the operands are divided, and the result if its spec is not ()."""
        used: set[Any] = set()

        def unused(*wishes: Any) -> _Names:
            for wish in wishes:
                names = wish if isinstance(wish, tuple) else (wish,) if wish else ()
                if names and used.isdisjoint(names):
                    used.update(names)
                    return names
            return ()

        rank = len(a.shape)
        A, B = (_padded(each.sharding.spec, rank) for each in (a, b))
        result = _padded(result, rank)
        batch = [unused(result[axis], A[axis], B[axis]) for axis in range(rank - 2)]
        rows = unused(result[-2], A[options.row_axis])
        cols = unused(result[-1], B[options.col_axis])
        in_a, in_b = options.depth_axes
        depth = unused(A[in_a], B[in_b])
        mesh = b.sharding.mesh if a.sharding.mesh.empty else a.sharding.mesh
        if a.shape[in_a] % math.prod(mesh.shape[name] for name in depth):
            depth = ()  # the last part would need padding with zeros

        def of(shape: _Shape, *matrix: _Names) -> _Spec:
            own = (() if size == 1 else names for size, names in zip(shape, batch, strict=False))
            return tuple(names or None for names in (*own, *matrix))

        return cls(
            of(a.shape[:-2], *((depth, rows) if options.transpose_a else (rows, depth))),
            of(b.shape[:-2], *((cols, depth) if options.transpose_b else (depth, cols))),
            of(options.shape(a.shape, b.shape)[:-2], rows, cols),
            depth,
        )


def _padded(spec: Sequence[Any], rank: int) -> _Spec:
    return (*spec, *(None,) * (rank - len(spec)))


def _call_handler(A: Any, B: Any, options: _Options) -> Any:
    result = jax.ShapeDtypeStruct(options.shape(A.shape, B.shape), jnp.float32)
    return jax.ffi.ffi_call(TARGET, result)(A, B, **dataclasses.asdict(options))


_partitioned = custom_partitioning(_call_handler, static_argnums=(2,))


def _partition(options: _Options, mesh: Any, operands: Any, result: Any) -> Any:
    specs = _Specs.chosen(options, operands[0], operands[1], result.sharding.spec)

    def on_one_device(A: Any, B: Any) -> Any:
        product = _call_handler(A, B, options)
        return jax.lax.psum(product, specs.depth) if specs.depth else product

    A, B, out = (
        NamedSharding(mesh, PartitionSpec(*spec)) for spec in (specs.A, specs.B, specs.result)
    )
    return mesh, on_one_device, out, (A, B)


def _sharding_rule(options: _Options, _: Any, operands: Any, results: Any) -> tuple[str, Any]:
    """The dimensions that must be divided alike, in the notation of `def_partition`."""
    result = [f"b{axis}" for axis in range(len(results[0].shape) - 2)]

    def of(name: str, shape: _Shape, *matrix: str) -> str:
        # A broadcast dimension is a factor of its own.
        batch = (f"{name}{n}" if shape[n] == 1 else factor for n, factor in enumerate(result))
        return " ".join((*batch, *matrix))

    a = of("x", operands[0].shape, *(("k", "m") if options.transpose_a else ("m", "k")))
    b = of("y", operands[1].shape, *(("n", "k") if options.transpose_b else ("k", "n")))
    return f"{a}, {b} -> {' '.join((*result, 'm', 'n'))}", {"reduction_factors": ("k",)}


_partitioned.def_partition(_partition, sharding_rule=_sharding_rule)


def _lower(context: Any, A: Any, B: Any, *, options: _Options) -> Any:
    # In jax.shard_map each device has its shard already. If shard_map leaves some mesh axes to
    # XLA, XLA gathers the operands along these.
    is_manual = getattr(context.module_context.axis_context, "manual_axes", ())
    function = _call_handler if is_manual else _partitioned
    rule = mlir.lower_fun(lambda A, B: function(A, B, options), multiple_results=False)
    return rule(context, A, B)


# custom_partitioning needs the devices when it is lowered. JAX has no public name for this.
dispatch.prim_requires_devices_during_lowering.add(_matmul)
mlir.register_lowering(_matmul, _lower)

if isinstance(jax.__version__, str):  # not where the documentation is built
    register_at_import()
