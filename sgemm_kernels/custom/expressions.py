"""Grids, blocks and sizes of plain kernels: expressions of M, N, K and the file's constants.

An expression is parsed, never evaluated as Python code. `/` rounds up, and `//` rounds down.
"""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

SIZES = ("M", "N", "K")
_BYTES = {"float": 4, "int": 4, "unsigned": 4, "float2": 8, "double": 8, "float4": 16, "char": 1}
_CEILING = {"CEIL_DIV", "CEILDIV", "CDIV", "CEIL", "DIV_UP", "DIVUP", "DIV_CEIL", "DIVIDE_UP"}
_CEILING |= {"ROUND_UP_DIV", "UP_DIV", "UPDIV"}
_MOST_DEPTH = 100
_BRACES = str.maketrans("{}", "()")


class ExpressionError(ValueError):
    """An expression that is not understood. The message shows one that is."""


@dataclass(frozen=True)
class Expression:
    """An integer expression: what the user wrote, how to compute it, and the same in C++."""

    text: str
    compute: Callable[[Mapping[str, int]], int]
    code: str
    sizes: frozenset[str]
    """Those of M, N and K that it depends on."""

    def at(self, M: int, N: int, K: int) -> int:
        """Its value. Raises ExpressionError for a division by zero."""
        try:
            return self.compute({"M": M, "N": N, "K": K})
        except ZeroDivisionError:
            raise ExpressionError(f"{self.text!r} divides by zero") from None


def expressions(
    what: str, given: object, names: Mapping[str, "int | str"], most: int
) -> tuple[Expression, ...]:
    """The components of a grid or a block, from a str, an int, or a sequence of these.

    ``names`` has the values of constants, and the sizes that other names mean.
    """
    if isinstance(given, str):
        tree = _parsed(what, given)
        parts: Sequence[object] = [given]
        if isinstance(tree, ast.Call) and _name(tree.func) == "dim3":
            parts = [ast.unparse(part) for part in tree.args]
        elif isinstance(tree, ast.Tuple):
            parts = [ast.unparse(part) for part in tree.elts]
    elif isinstance(given, Sequence):
        parts = given
    else:
        parts = [given]
    if not 1 <= len(parts) <= most:
        raise ExpressionError(f"{what}={given!r}: it has 1 to {most} components")
    return tuple(expression(what, part, names) for part in parts)


def expression(what: str, given: object, names: Mapping[str, "int | str"]) -> Expression:
    """One expression, from a str or an int. Raises ExpressionError."""
    if isinstance(given, bool) or not isinstance(given, str | int):
        raise ExpressionError(
            f"{what}: {given!r} is no expression: pass an int, or a str such as '(N/32, M/32)'"
        )
    text = str(given)
    return _Builder(what, text, names).build(_parsed(what, text))


def _parsed(what: str, text: str) -> ast.expr:
    python = re.sub(r"(?<=[0-9])[uUlL]+\b", "", text.strip())
    python = re.sub(
        r"\(\s*(?:unsigned\s+)?(?:int|float|double|unsigned|size_t)\s*\)(?!\s*$)", "", python
    )
    python = re.sub(r"\bunsigned\s+int\b", "unsigned", python)
    python = re.sub(r"(?<=[0-9])\.(?:0*f?)(?![0-9])", "", python).translate(_BRACES)
    try:
        return ast.parse(python, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ExpressionError(
            f"{what}={text!r} is no expression: write one such as '(N/32, M/32)' or "
            "'CEIL_DIV(N, BN)'; / rounds up, // rounds down"
        ) from None


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


class _Builder:
    def __init__(self, what: str, text: str, names: Mapping[str, "int | str"]) -> None:
        self._what, self._text, self._names = what, text, names

    def build(self, node: ast.expr, depth: int = 0) -> Expression:
        if depth > _MOST_DEPTH:
            raise self._fault("it is nested too deeply")
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return self._constant(value)
            case ast.Name(id=name):
                return self._named(name)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.build(operand, depth + 1)
                return self._made(lambda v: -inner.compute(v), f"(-{inner.code})", inner)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.build(operand, depth + 1)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(left, op, right, depth)
            case ast.Call(func=ast.Name(id="sizeof"), args=[ast.Name(id=kind)]) if kind in _BYTES:
                return self._constant(_BYTES[kind])
            case ast.Call(func=ast.Name(id="ceil" | "ceilf"), args=[inner_node], keywords=[]):
                return self.build(inner_node, depth + 1)
            case ast.Call(func=ast.Name(id=name), args=[one, other], keywords=[]):
                a, b = self.build(one, depth + 1), self.build(other, depth + 1)
                if name in ("min", "max"):
                    pick = min if name == "min" else max
                    return self._made(
                        lambda v: pick(a.compute(v), b.compute(v)),
                        f"::plain_{name}({a.code}, {b.code})",
                        a,
                        b,
                    )
                if name.replace("_", "").upper() in {each.replace("_", "") for each in _CEILING}:
                    return self._up(a, b)
                raise self._fault(f"{name}() is no function that it may call")
        raise self._fault(f"{ast.unparse(node)!r} is not allowed")

    def _fault(self, why: str) -> ExpressionError:
        return ExpressionError(
            f"{self._what}={self._text!r}: {why}: use M, N, K, constants of the file, numbers, "
            "+ - * / // %, CEIL_DIV(a, b), min, max and sizeof(float)"
        )

    def _made(
        self, compute: Callable[[Mapping[str, int]], int], code: str, *parts: Expression
    ) -> Expression:
        sizes = frozenset().union(*(part.sizes for part in parts))
        if not sizes:
            try:
                return self._constant(compute({}))
            except ZeroDivisionError:
                raise self._fault("it divides by zero") from None
        return Expression(self._text, compute, code, sizes)

    def _constant(self, value: int) -> Expression:
        if abs(value) >= 1 << 62:
            raise self._fault(f"{value} is too large")
        return Expression(self._text, lambda _: value, f"int64_t{{{value}}}", frozenset())

    def _named(self, name: str) -> Expression:
        meaning = self._names.get(name, name)
        if isinstance(meaning, int):
            return self._constant(meaning)
        if meaning not in SIZES and name.upper() in SIZES:
            meaning = name.upper()
        if meaning not in SIZES:
            raise self._fault(f"{name} is neither M, N or K nor an integer constant of the file")
        # Names of its own, since M may be a macro of the file.
        code = f"plain_{meaning}"
        return Expression(self._text, lambda v: v[meaning], code, frozenset({meaning}))

    def _binary(self, left: ast.expr, op: ast.operator, right: ast.expr, depth: int) -> Expression:
        a, b = self.build(left, depth + 1), self.build(right, depth + 1)
        match op:
            case ast.Add():
                return self._made(
                    lambda v: a.compute(v) + b.compute(v), f"({a.code} + {b.code})", a, b
                )
            case ast.Sub():
                return self._made(
                    lambda v: a.compute(v) - b.compute(v), f"({a.code} - {b.code})", a, b
                )
            case ast.Mult():
                return self._made(
                    lambda v: a.compute(v) * b.compute(v), f"({a.code} * {b.code})", a, b
                )
            case ast.Div():
                # The numerator of (M + 31) / 32, or of (M - 1) / 32 + 1, rounds by itself.
                offset = self._offset(left)
                if not b.sizes and a.sizes and offset in (b.compute({}) - 1, -1) and offset != 0:
                    return self._down(a, b)
                return self._up(a, b)
            case ast.FloorDiv():
                return self._down(a, b)
            case ast.Mod():
                return self._made(
                    lambda v: a.compute(v) % b.compute(v), f"::plain_rest({a.code}, {b.code})", a, b
                )
            case ast.LShift() if not b.sizes and 0 <= b.compute({}) < 32:
                factor = 1 << b.compute({})
                return self._made(
                    lambda v: a.compute(v) * factor, f"({a.code} * int64_t{{{factor}}})", a
                )
            case ast.RShift() if not b.sizes and 0 <= b.compute({}) < 32:
                return self._down(a, self._constant(1 << b.compute({})))
        raise self._fault("it has an operator that is not allowed")

    def _up(self, a: Expression, b: Expression) -> Expression:
        return self._made(
            lambda v: -(-a.compute(v) // b.compute(v)), f"::plain_up({a.code}, {b.code})", a, b
        )

    def _down(self, a: Expression, b: Expression) -> Expression:
        return self._made(
            lambda v: a.compute(v) // b.compute(v), f"::plain_down({a.code}, {b.code})", a, b
        )

    def _offset(self, node: ast.expr) -> int:
        """The constant that a sum adds to its other terms."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            sign = 1 if isinstance(node.op, ast.Add) else -1
            return self._offset(node.left) + sign * self._offset(node.right)
        inner = self.build(node)
        return 0 if inner.sizes else inner.compute({})


# ------------------------------------------------------------------ the file's constants

_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)", re.MULTILINE)
_CONST = re.compile(
    r"\b(?:constexpr|const)\b(?:\s+(?:static|const|constexpr|inline|unsigned|signed|long|short))*"
    r"\s+(?:int|unsigned|uint|size_t|u?int(?:8|16|32|64)_t|long|auto|short)\b"
    r"(?:\s+(?:const|int|long))*\s+([^;(){}]*(?:\([^;{}]*)?);"
)
_ENUM = re.compile(r"\benum\b[^{;]*\{([^}]*)\}")


def constants_of(code: str, known: Mapping[str, int]) -> dict[str, int]:
    """The integer constants of a text without comments. ``known`` has values that take precedence.

    Constants with any other value are left out.
    """
    texts: dict[str, str] = {}
    for found in _MACRO.finditer(code):
        texts.setdefault(found[1], found[2])
    for found in _CONST.finditer(code):
        for part in split_at_commas(found[1]):
            name, equals, value = part.partition("=")
            if equals and name.strip().isidentifier():
                texts.setdefault(name.strip(), value)
    for found in _ENUM.finditer(code):
        for part in split_at_commas(found[1]):
            name, equals, value = part.partition("=")
            if equals and name.strip().isidentifier():
                texts.setdefault(name.strip(), value)
    values = dict(known)

    def value_of(name: str, busy: frozenset[str]) -> int | None:
        if name not in values and name in texts and name not in busy:
            inner = busy | {name}
            words = set(re.findall(r"[A-Za-z_]\w*", texts[name]))
            names = {word: found for word in words if (found := value_of(word, inner)) is not None}
            # C++ rounds down.
            text = re.sub(r"(?<!/)/(?!/)", "//", texts[name])
            text = re.sub(r"\(\s*(?:int|unsigned|size_t)\s*\)|static_cast<\w+>", "", text)
            try:
                built = expression(name, text.strip(), {**dict.fromkeys(SIZES, "?"), **names})
                values[name] = built.compute({})
            except (ExpressionError, KeyError):
                return None
        return values.get(name)

    for name in texts:
        value_of(name, frozenset())
    return values


def split_at_commas(text: str) -> list[str]:
    """The parts of a text between its commas outside of brackets."""
    parts = [""]
    depth = 0
    for letter in text:
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
