"""Integer expressions in goal.toml: numbers, names, ``+ - * / // % ^`` and brackets."""

import ast
import operator
from collections.abc import Callable, Mapping

_OPERATORS: dict[type[ast.operator], Callable[[int, int], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitXor: operator.xor,
}


def value_of(expression: str | float, names: Mapping[str, int]) -> float:
    """The value of an expression. Raises ValueError for one that is not of this form."""
    if not isinstance(expression, str):
        return expression

    def value(node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name) if name in names:
                return names[name]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                found: float = _OPERATORS[type(op)](value(left), value(right))  # type: ignore[arg-type]
                return found
        raise ValueError(f"{expression!r} is no expression of numbers and {', '.join(names)}")

    return value(ast.parse(expression, mode="eval").body)
