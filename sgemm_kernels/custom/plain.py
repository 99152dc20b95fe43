"""Plain CUDA kernels: any `__global__` function of pointers, sizes and scalars.

The parameters are recognised by their names and types. A generated launcher calls the function
(csrc/custom/plain.h); it packs operands that are not row-major first.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from . import expressions, plain_text
from .expressions import Expression, ExpressionError, split_at_commas
from .plain_parameters import Parameter, Value, is_square, parameters_of
from .plain_text import Function

_SHARED = re.compile(
    r"(?<!extern )\b__shared__\s+(?:(?:__align__|alignas)\s*\([^()]*\)\s*)?([\w:]+)\s+([^;(]*);"
)
_SHARED_BYTES = {"float2": 8, "float3": 12, "float4": 16, "double": 8}
_SHARED_BYTES |= {"int2": 8, "int4": 16, "uint2": 8, "uint4": 16}
_SHARED_BYTES |= dict.fromkeys(
    ("int64_t", "uint64_t", "size_t", "Mbarrier", "__mbarrier_t", "long"), 8
)
_SHARED_BYTES |= dict.fromkeys(("char", "int8_t", "uint8_t", "bool"), 1)
_SHARED_BYTES |= dict.fromkeys(("half", "__half", "short", "int16_t", "uint16_t"), 2)
_BK = ("BK", "BLOCK_K", "TILE_K", "bK", "kBK", "K_TILE", "BLOCK_SIZE_K", "TILEK", "TK", "KTILE")
_MOST_TILE = 1024
_NO_TILE = 16


@dataclass(frozen=True)
class PlainLaunch:
    """How a plain kernel is launched, as the user gave it."""

    grid: str | int | tuple[str | int, ...]
    block: str | int | tuple[str | int, ...]
    shared: str | int = 0
    function: str | None = None
    arguments: tuple[tuple[str, Value], ...] = ()
    multiple_of: tuple[str | int, ...] = ()
    tile: tuple[str | int, ...] = ()
    accumulates: bool | None = None

    @classmethod
    def of(
        cls,
        grid: object,
        block: object,
        *,
        shared: str | int = 0,
        function: str | None = None,
        arguments: Mapping[str, Value] | None = None,
        multiple_of: object = None,
        tile: object = None,
        accumulates: bool | None = None,
    ) -> "PlainLaunch":
        """From the arguments of ``kernel``. Raises ValueError."""
        for name, value in (("grid", grid), ("block", block)):
            if value is None:
                raise ValueError(
                    f"a plain kernel needs grid= and block=, and {name}= is missing: for example "
                    "grid='(N/32, M/32)', block=(32, 32)"
                )
        return cls(
            _fixed(grid),
            _fixed(block),
            shared,
            function,
            tuple(sorted((arguments or {}).items())),
            _sizes("multiple_of", multiple_of),
            _sizes("tile", tile),
            accumulates,
        )


def _fixed(given: object) -> "str | int | tuple[str | int, ...]":
    if isinstance(given, Sequence) and not isinstance(given, str):
        return tuple(given)
    return given  # type: ignore[return-value]  # expressions() refuses other types


def _sizes(what: str, given: object) -> "tuple[str | int, ...]":
    if given is None:
        return ()
    if isinstance(given, str) and "," in given:
        given = tuple(part.strip() for part in given.strip("() ").split(","))
    if isinstance(given, int | str):
        return (given, given, given)
    if not isinstance(given, Sequence) or len(given) != 3:
        raise ValueError(f"{what}={given!r}: pass one size, or three: (M, N, K)")
    return tuple(given)


@dataclass(frozen=True)
class Plain:
    """A plain kernel: its function, its parameters and its launch."""

    function: Function
    call: str
    """The function with its template arguments."""
    parameters: tuple[Parameter, ...]
    grid: tuple[Expression, ...]
    block: tuple[Expression, ...]
    shared: Expression
    multiple_of: tuple[int, int, int]
    tile: tuple[int, int, int]
    square: bool
    """Whether it has one size for M, N and K."""
    accumulates: bool
    """Whether it adds to C, which must be zero first."""
    reads_C: bool
    """Whether it may read C although beta is 0, as in alpha * sum + beta * C. C is zeroed then."""
    static_bytes: int
    """Its static shared memory, as far as the declarations tell."""

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(parameter.role for parameter in self.parameters)

    @property
    def scales(self) -> bool:
        """Whether it has a parameter alpha."""
        return "alpha" in self.roles

    @property
    def adds(self) -> bool:
        """Whether it has a parameter beta."""
        return "beta" in self.roles

    @property
    def in_whole_tiles(self) -> bool:
        """Whether it needs sizes that are multiples of something."""
        return self.multiple_of != (1, 1, 1)

    def fitting(self, M: int, N: int, K: int) -> tuple[int, int, int]:
        """The sizes, rounded up to what the kernel computes without padded operands."""
        M, N, K = (-(-n // of) * of for n, of in zip((M, N, K), self.multiple_of, strict=True))
        if self.square:
            side = max(M, N, K)
            return side, side, side
        return M, N, K

    def in_float4s(self, M: int, N: int, K: int) -> tuple[int, int, int]:
        """The sizes, rounded up to multiples of four that the kernel computes as they are."""
        M, N, K = (
            -(-n // math.lcm(of, 4)) * math.lcm(of, 4)
            for n, of in zip((M, N, K), self.multiple_of, strict=True)
        )
        return self.fitting(M, N, K)

    def refuse_zero(self) -> None:
        """Raises ExpressionError if a component of the grid or the block is not positive."""
        for what, parts, most in (("grid", self.grid, 0), ("block", self.block, 1024)):
            for part in parts:
                value = part.at(*self.fitting(1024, 1024, 1024))
                if value < 1 or (most and value > most):
                    limit = f"1 to {most}" if most else "1 or more"
                    raise ExpressionError(
                        f"{what}: {part.text!r} is {value} for M = N = K = 1024: it must be {limit}"
                    )


@lru_cache(maxsize=64)
def analysed(
    text: str, file: str, launch: PlainLaunch, defines: tuple[tuple[str, int], ...]
) -> Plain:
    """The plain kernel of a flattened text. Raises ValueError with the line and what to write."""
    function, arguments = _chosen(text, file, launch.function)
    # Values from device code take precedence over values from host code.
    code = plain_text.masked(f"{plain_text.device_code(text)}\n{text}")
    known = {**dict(defines), **_template_values(function, arguments, code, dict(defines))}
    constants = expressions.constants_of(code, known)
    names: dict[str, int | str] = {
        name: value for name, value in constants.items() if name not in expressions.SIZES
    }
    types = {**plain_text.aliases_of(code), **_template_types(function, arguments)}
    parameters = parameters_of(function, file, dict(launch.arguments), names, types)
    square = is_square(parameters)
    for parameter in parameters:
        if isinstance(parameter.value, Expression) and parameter.name not in expressions.SIZES:
            size = next(iter(parameter.value.sizes), "")
            if parameter.value.text == size:
                names[parameter.name] = size
    grid = expressions.expressions("grid", launch.grid, names, 3)
    block = expressions.expressions("block", launch.block, names, 3)
    shared = expressions.expression("shared", launch.shared, names)
    multiple = _constants("multiple_of", launch.multiple_of, names) or (1, 1, 1)
    if square:
        multiple = (math.lcm(*multiple),) * 3
    tile = _constants("tile", launch.tile, names) or _tile(grid, multiple, square, constants)
    output = next(p.name for p in parameters if p.role[:1] == "C")
    beta = next((parameter.name for parameter in parameters if parameter.role == "beta"), "")
    uses_beta = bool(beta and re.search(rf"\b{beta}\b", function.body))
    accumulates = (
        _adds_atomically(function, output) and not uses_beta
        if launch.accumulates is None
        else launch.accumulates
    )
    arguments = _outside(function, arguments, known)
    plain = Plain(
        function,
        f"{function.name}<{', '.join(arguments)}>" if arguments else function.name,
        tuple(parameters),
        grid,
        block,
        shared,
        multiple,
        tile,
        square,
        accumulates,
        uses_beta and not re.search(rf"\b{beta}\s*[=!]=", function.body),
        static_bytes(function.body, names),
    )
    plain.refuse_zero()
    return plain


def _constants(
    what: str, given: Sequence["str | int"], names: Mapping[str, "int | str"]
) -> tuple[int, int, int] | None:
    if not given:
        return None
    sizes = []
    for each in given:
        found = expressions.expression(what, each, names)
        value = None if found.sizes else found.at(1, 1, 1)
        if value is None or not 1 <= value <= _MOST_TILE:
            raise ValueError(f"{what}: {each!r} is no size from 1 to {_MOST_TILE}")
        sizes.append(value)
    return (sizes[0], sizes[1], sizes[2])


def _adds_atomically(function: Function, output: str) -> bool:
    return bool(re.search(rf"\batomicAdd\s*\([^;]*?\b{re.escape(output)}\b", function.body))


def static_bytes(body: str, names: Mapping[str, "int | str"]) -> int:
    """The bytes of a function's arrays in shared memory whose sizes are constants."""
    total = 0
    for declared in _SHARED.finditer(body):
        for part in split_at_commas(declared[2]):
            count = _SHARED_BYTES.get(declared[1], 4)
            for size in re.findall(r"\[([^]]*)\]", part.partition("=")[0]):
                try:
                    found = expressions.expression("shared", re.sub(r"(?<!/)/", "//", size), names)
                    count *= 0 if found.sizes else found.at(1, 1, 1)
                except ExpressionError:
                    count = 0
            total += count
    return total


# ------------------------------------------------------------------ the function


def _chosen(text: str, file: str, wanted: str | None) -> tuple[Function, list[str]]:
    """The function and its template arguments."""
    found = plain_text.functions(text)
    if not found:
        macros = [
            name for name, means in plain_text.macros_of(text).items() if "__global__" in means
        ]
        advice = f": the macro {macros[0]} has one, so write it without the macro" if macros else ""
        raise ValueError(f"{file} defines no __global__ function{advice}")
    name, _, rest = (wanted or "").partition("<")
    name = name.strip()
    if name:
        if not re.fullmatch(r"[\w:]+", name) or (
            rest and not re.fullmatch(r"[\w\s,.:*+/()-]*>\s*", rest)
        ):
            raise ValueError(
                f"function={wanted!r} is no name: pass one such as 'sgemm' or 'sgemm<64, 64, 8>'"
            )
        found = [each for each in found if name in (each.name, each.name.rpartition("::")[2])]
        if not found:
            every = ", ".join(each.name for each in plain_text.functions(text))
            raise ValueError(f"{file} defines no __global__ function {name!r}; it has {every}")
    elif len(found) > 1:
        every = ", ".join(dict.fromkeys(each.name for each in found))
        raise ValueError(
            f"{file} defines several __global__ functions: pass function= with one of {every}"
        )
    function = found[0]
    arguments = [part.strip() for part in split_at_commas(rest.rpartition(">")[0])] if rest else []
    if function.template and not arguments:
        needed = [part for part in split_at_commas(function.template) if "=" not in part]
        if all(re.match(r"typename\b|class\b", part.strip()) for part in needed):
            arguments = ["float"] * len(needed)
        elif needed:
            values = ", ".join(part.split()[-1] for part in split_at_commas(function.template))
            raise ValueError(
                f"{function.file or file}:{function.line}: {function.name} is a template: pass its "
                f"arguments, function='{function.name}<...>' with values for {values}"
            )
        defaults = split_at_commas(function.template)[len(arguments) :]
        arguments += [part.partition("=")[2].strip() for part in defaults]
    if arguments and not function.template:
        raise ValueError(
            f"{function.file or file}:{function.line}: {function.name} is not a template"
        )
    return function, arguments


def _template_values(
    function: Function, arguments: Sequence[str], code: str, defines: Mapping[str, int]
) -> dict[str, int]:
    """The integer arguments of the template by its parameters' names."""
    if not arguments:
        return {}
    constants = expressions.constants_of(code, defines)
    values: dict[str, int] = {}
    parts = split_at_commas(function.template)
    given = [*arguments, *(part.partition("=")[2] for part in parts[len(arguments) :])]
    for part, text in zip(parts, given, strict=False):
        name = part.partition("=")[0].split()[-1]
        try:
            built = expressions.expression(name, text.strip(), {**constants, **values})
        except ExpressionError:
            continue  # a type
        if not built.sizes:
            values[name] = built.at(1, 1, 1)
    return values


def _outside(function: Function, arguments: Sequence[str], values: Mapping[str, int]) -> list[str]:
    """The template's arguments with the values of its defaults, whose names may be in a
    namespace."""
    parts = [part.partition("=") for part in split_at_commas(function.template)]
    found = []
    for (declared, _, default), given in zip(parts, arguments, strict=False):
        name = declared.split()[-1]
        is_default = name in values and given == default.strip()
        found.append(str(values[name]) if is_default else given)
    return found


def _template_types(function: Function, arguments: Sequence[str]) -> dict[str, str]:
    """The types that are arguments of the template, by its parameters' names."""
    parts = [part.partition("=")[0].split() for part in split_at_commas(function.template)]
    return {
        words[1]: given
        for words, given in zip(parts, arguments, strict=False)
        if words[:1] in (["typename"], ["class"]) and len(words) > 1
    }


# ------------------------------------------------------------------ its tile


def _tile(
    grid: Sequence[Expression],
    multiple: tuple[int, int, int],
    square: bool,
    constants: Mapping[str, int],
) -> tuple[int, int, int]:
    """The tile of C that a block computes, and the step along K, as far as the grid tells."""

    def blocks(M: int, N: int, K: int = 1024) -> int:
        count = 1
        for part in grid:
            count *= max(part.at(M, N, K), 1)
        return count

    def first_more(along_M: bool) -> int:
        base = blocks(1, 1)
        for size in range(1, _MOST_TILE + 1):
            if blocks(*((size + 1, 1) if along_M else (1, size + 1))) > base:
                return size
        return 0

    def first_more_square() -> int:
        base = blocks(1, 1, 1)
        sides = range(1, _MOST_TILE + 1)
        return next((s for s in sides if blocks(s + 1, s + 1, s + 1) > base), 0)

    if square:
        BM = BN = first_more_square() or _NO_TILE
    else:
        BM, BN = first_more(True), first_more(False)
        if BM and BN and blocks(2 * BM, 2 * BN) != 4 * blocks(BM, BN):
            BM = 1  # a grid of one dimension numbers the elements of C row by row
        BM, BN = BM or _NO_TILE, BN or _NO_TILE
    BM, BN = max(BM, multiple[0]), max(BN, multiple[1])
    BK = next((constants[name] for name in _BK if 0 < constants.get(name, 0) <= 256), 0)
    if multiple[2] > 1:
        BK = multiple[2]
    return BM, BN, BK or max(min(BM, BN, 32), 8)
