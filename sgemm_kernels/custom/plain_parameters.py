"""Recognises the parameters of a plain kernel by their names and types."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from . import expressions
from .expressions import Expression, ExpressionError, split_at_commas
from .plain_text import Function

_POINTERS = ("A", "B", "C", "A.T", "B.T", "C.T")
_SCALARS = ("alpha", "beta")
_SQUARE = {
    "n",
    "size",
    "width",
    "dim",
    "matrixsize",
    "matrixwidth",
    "matsize",
    "sz",
    "len",
    "length",
}
_SQUARE |= {"matrixdim", "order", "w", "ndim", "m", "k", "dimension", "s"}
_LEADING = re.compile(
    r"(?:ld|stride|pitch|leading(?:dim(?:ension)?)?)([abc])|([abc])(?:ld|stride|pitch)"
)
_ROWS = r"(?:num|n|no)?(?:rows?|height|h|ht)"
_COLS = r"(?:num|n|no)?(?:cols?|columns?|width|w|wd)"
_OF_MATRIX = re.compile(
    rf"(?:(?:num|n)?([abc])(?:(?P<r1>{_ROWS})|(?P<c1>{_COLS})))|"
    rf"(?:(?:(?P<r2>{_ROWS})|(?P<c2>{_COLS}))(?:of)?([abc]))"
)
_NAMED_SIZES = {
    "M": re.compile(rf"(?:size|dim|num|len)?m|m(?:size|dim|len)|{_ROWS}"),
    "N": re.compile(rf"(?:size|dim|num|len)?n|n(?:size|dim|len)|{_COLS}"),
    "K": re.compile(
        r"(?:size|dim|num|len)?k|k(?:size|dim|len)|inner(?:dim|size)?|depth|common(?:dim)?"
    ),
}
_INTEGER = re.compile(r"\b(int|unsigned|size_t|uint|u?int(16|32|64)_t|long|short|ulong|uint64)\b")
_NOT_FLOAT = re.compile(
    r"\b(double|u?int\d?|u?int\d+_t|unsigned|char|short|long|bool|(__)?half2?|__nv_\w+)\b"
)
_NAMES = {"a": "A", "b": "B", "c": "C", "lhs": "A", "rhs": "B", "left": "A", "right": "B"}
_NAMES |= dict.fromkeys(("out", "output", "result", "res", "dst", "d", "y", "p"), "C")
_FLOATING = re.compile(r"\b(float|double)\b")
_TYPE_WORDS = {"float", "int", "double", "unsigned", "long", "short", "char", "bool", "const"}
_NULL = (None, "None", "null", "NULL", "nullptr")
"""What arguments= may give for a null pointer."""
Value: TypeAlias = str | int | float | None


@dataclass(frozen=True)
class Parameter:
    """A parameter of the function, and what it gets."""

    name: str
    type: str
    role: str  # A, B, C, A.T, B.T, C.T, null, alpha, beta, or empty for `value`
    value: Expression | float | None = None


def parameters_of(
    function: Function,
    file: str,
    mapping: Mapping[str, "Value"],
    names: Mapping[str, "int | str"],
    aliases: Mapping[str, str],
) -> list[Parameter]:
    """The parameters and what they get. ``aliases`` has the types that other names mean."""
    place = f"{function.file or file}:{function.line}: "
    parts = _parts(function.parameters)
    spare = sum("*" in part or "[" in part for part in parts) > 3
    mapping = {name: None if value in _NULL else value for name, value in mapping.items()}
    declared = [_declared(part, place, mapping, aliases, spare) for part in parts if part != "void"]
    unknown = set(mapping) - {name for name, _ in declared}
    if unknown:
        every = ", ".join(name for name, _ in declared)
        raise ValueError(
            f"{place}arguments= names {sorted(unknown)[0]!r}, which {function.name} does not have: "
            f"its parameters are {every}"
        )
    null = [each for each in declared if "*" in each[1] and mapping.get(each[0], "") is None]
    _refuse_too_few(function, [each for each in declared if "*" in each[1]], null, place)
    pointers = _pointer_roles(
        [each for each in declared if "*" in each[1] and each not in null], mapping, place
    )
    sizes = [
        n for n, kind in declared if "*" not in kind and not _is_real(n, kind) and n not in mapping
    ]
    parameters = []
    for name, kind in declared:
        if (name, kind) in null:
            parameters.append(Parameter(name, kind, "null"))
        elif name in mapping and "*" not in kind:
            parameters.append(_mapped(name, kind, mapping[name], names, place))
        elif "*" in kind:
            parameters.append(Parameter(name, kind, pointers[name]))
        elif _is_real(name, kind):
            base = name.lower().strip("_")
            role = {"alpha": "alpha", "beta": "beta", "a": "alpha", "b": "beta"}.get(base)
            if role is None:
                raise _unrecognised(place, name, kind)
            parameters.append(Parameter(name, kind, role))
        else:
            size = _size(name, len(sizes) == 1, pointers)
            if size is None:
                raise _unrecognised(place, name, kind)
            parameters.append(Parameter(name, kind, "", expressions.expression(name, size, {})))
    given = [p.role[:1] for p in parameters if p.role in _POINTERS]
    for wanted in "ABC":
        if given.count(wanted) != 1:
            every = ", ".join(name for name, _ in declared)
            raise ValueError(
                f"{place}which parameter of {function.name} ({every}) is {wanted} is not clear: "
                f"pass arguments={{'PARAMETER': '{wanted}'}}"
            )
    if not any(isinstance(p.value, Expression) and p.value.sizes for p in parameters):
        raise ValueError(
            f"{place}{function.name} has no size among its parameters, and it must compute "
            "products of any size: make M, N and K parameters, or name them in arguments="
        )
    return parameters


def _parts(parameters: str) -> list[str]:
    """The declarations of parameters: a comma may also be in a template's arguments."""
    parts: list[str] = []
    for part in split_at_commas(parameters):
        if parts and parts[-1].count("<") > parts[-1].count(">"):
            parts[-1] += f",{part}"
        else:
            parts.append(part)
    return [part.strip() for part in parts if part.strip()]


def _unrecognised(place: str, name: str, kind: str, role: str | None = None) -> ValueError:
    """``role`` is one that no other pointer has, if there is one."""
    if "*" in kind:
        what = f"{role!r}}}; 'A', 'B', 'C', 'A.T', 'B.T', 'C.T', or None for a null pointer"
    elif _FLOATING.search(kind):
        what = "'alpha'}; 'alpha', 'beta', or a number"
    else:
        example = "0" if re.search(r"\bbool\b", kind) else "'K'"
        what = f"{example}}}; a number, or an expression of M, N and K"
    return ValueError(
        f"{place}the parameter '{kind} {name}' is not recognised: say what it gets, such as "
        f"arguments={{'{name}': {what}"
    )


def _refuse_too_few(
    function: Function,
    pointers: Sequence[tuple[str, str]],
    null: Sequence[tuple[str, str]],
    place: str,
) -> None:
    left = len(pointers) - len(null)
    if left < 3:
        raise ValueError(
            f"{place}{function.name} has {left} pointer{'' if left == 1 else 's'} to matrices, and "
            "a product needs three parameters, for A, B and C: choose another function with "
            "function=, or make the matrices parameters"
        )


def _declared(
    text: str, place: str, mapping: Mapping[str, "Value"], aliases: Mapping[str, str], spare: bool
) -> tuple[str, str]:
    """The name and the type of a parameter. ``spare``: the function has more than three
    pointers."""
    text = re.sub(r"\[\[[^\]]*\]\]", " ", text).partition("=")[0].strip()
    whole = " ".join(text.split())
    if re.search(r"\(|\]\s*\[|\.\.\.", text):
        raise _unsupported(place, whole)
    array = re.fullmatch(r"(.*?)(\w+)\s*\[[^\]]*\]", text, re.DOTALL)
    if array:
        text = f"{array[1]} *{array[2]}"
    named = re.fullmatch(r"(.*[\s*&>])(\w+)", text, re.DOTALL)
    if named is None or named[2] in _TYPE_WORDS:
        raise ValueError(f"{place}the parameter {whole!r} has no name: give it one")
    kind = re.sub(r"\b(__restrict__|__restrict|restrict|__grid_constant__)\b", " ", named[1])
    kind = " ".join(kind.split())
    meant = kind
    for _ in range(len(aliases)):  # an alias may mean another one
        changed = re.sub(r"[A-Za-z_]\w*", lambda word: aliases.get(word[0], word[0]), meant)
        if changed == meant:
            break
        meant = changed
    name = named[2]
    if "&" in meant or meant.count("*") > 1:
        raise _unsupported(place, whole)
    if "*" in meant and name.lower().strip("_") in _SCALARS:
        raise ValueError(
            f"{place}the parameter '{whole}' is a pointer, and {name} is passed by value: write "
            f"float {name}"
        )
    if "*" in meant and _NOT_FLOAT.search(meant) and mapping.get(name, "") is not None:
        null = f", or pass arguments={{'{name}': None}} for a null pointer" if spare else ""
        raise ValueError(
            f"{place}the parameter '{kind} {name}' is no pointer to float, and all operands are "
            f"float: write float (or float2, float4) in its type{null}"
        )
    meant = re.sub(r"\bstd::(?=u?int\w*_t\b|size_t\b)", "", meant)
    if "*" not in meant and re.search(r"::|<", meant):
        raise _unsupported(place, whole)
    if "*" not in meant and not (_INTEGER.search(meant) or _FLOATING.search(meant)):
        known = re.fullmatch(r"(?:const\s+)?(?:signed\s+)?(?:char|bool|auto)(?:\s+const)?", meant)
        if not known and not (name.lower().strip("_") in _SCALARS and name in mapping):
            raise _unsupported(place, whole)
    return name, meant


def _unsupported(place: str, text: str) -> ValueError:
    return ValueError(
        f"{place}the parameter '{text}' is not supported: a kernel's parameters are flat pointers, "
        "such as float *A with A[row * K + col], and scalars, such as int N and float alpha"
    )


def _is_real(name: str, kind: str) -> bool:
    if _FLOATING.search(kind):
        return True
    return not _INTEGER.search(kind) and name.lower().strip("_") in _SCALARS


def _mapped(
    name: str, kind: str, value: "Value", names: Mapping[str, "int | str"], place: str
) -> Parameter:
    if value is None:
        raise ValueError(f"{place}{name!r} gets None, and only a pointer can be null")
    if value in _SCALARS:
        return Parameter(name, kind, str(value))
    if isinstance(value, float) or (isinstance(value, int) and _is_real(name, kind)):
        return Parameter(name, kind, "", float(value))
    try:
        return Parameter(name, kind, "", expressions.expression(name, value, names))
    except ExpressionError as error:
        raise ValueError(f"{place}arguments: {error}") from None


def _base(name: str) -> str:
    base = name.lower().strip("_")
    base = re.sub(
        r"^(?:d|dev|device|g|gpu|gmem|in|input|mat|matrix|p|ptr|src|global)_(?=\w)", "", base
    )
    base = re.sub(r"_(?:d|dev|device|g|gpu|in|out|mat|matrix|ptr|global|gmem|arr|data)$", "", base)
    base = re.sub(r"^(?:mat|matrix|dev|gpu|input|ptr)(?=[abc]$)", "", base)
    return re.sub(r"^d(?=[abc]$)|(?<=^[abc])(?:d|ptr|mat|matrix|data)$", "", base)


def _pointer_roles(
    pointers: Sequence[tuple[str, str]], mapping: Mapping[str, object], place: str
) -> dict[str, str]:
    roles: dict[str, str] = {}
    for name, _ in pointers:
        if name in mapping:
            role = str(mapping[name])
            if role not in _POINTERS:
                raise ValueError(
                    f"{place}arguments= maps the pointer {name!r} to {role!r}: it can be one of "
                    f"{', '.join(_POINTERS)} and None"
                )
            roles[name] = role
    left = [(name, kind) for name, kind in pointers if name not in roles]
    if [name for name, _ in left] in (["M", "N", "P"], ["d_M", "d_N", "d_P"], ["Md", "Nd", "Pd"]):
        return {**roles, **dict(zip((name for name, _ in left), "ABC", strict=True))}
    free = [role for role in "ABC" if role not in {given[:1] for given in roles.values()}]
    named: dict[str, str] = {}
    for name, _ in left:
        role = _NAMES.get(_base(name), "")
        if role in free and role not in named.values():
            named[name] = role
    if len(named) < len(left) and len(left) == len(free):
        rest = [(name, kind) for name, kind in left if name not in named]
        open_roles = [role for role in free if role not in named.values()]
        outputs = [name for name, kind in rest if not re.search(r"\bconst\b", kind)]
        if "C" in open_roles and len(outputs) == 1:
            named[outputs[0]] = "C"
        elif "C" in open_roles and len(rest) == 3:
            named[rest[-1][0]] = "C"  # the inputs come first
        open_roles = [role for role in free if role not in named.values()]
        for (name, _), role in zip(
            [each for each in rest if each[0] not in named], open_roles, strict=False
        ):
            named[name] = role
    for name, kind in left:
        if name not in named:
            open_roles = [role for role in free if role not in named.values()]
            raise _unrecognised(place, name, kind, next(iter(open_roles), None))
    return {**roles, **named}


def _size(name: str, alone: bool, pointers: Mapping[str, str]) -> str | None:
    """What an integer parameter gets: M, N, K, or S for the side of square matrices."""
    base = name.lower().replace("_", "")
    turned = {role[0] for role in pointers.values() if role.endswith(".T")}
    if alone and base in _SQUARE:
        return "N"
    if found := _LEADING.fullmatch(base):
        letter = (found[1] or found[2]).upper()
        return {"A": "MK", "B": "KN", "C": "MN"}[letter][letter not in turned]
    if found := _OF_MATRIX.fullmatch(base):
        letter = (found[1] or found[6]).upper()
        rows, cols = {"A": ("M", "K"), "B": ("K", "N"), "C": ("M", "N")}[letter]
        return rows if found["r1"] or found["r2"] else cols
    for size, pattern in _NAMED_SIZES.items():
        if pattern.fullmatch(base):
            return size
    return None


def is_square(parameters: Sequence[Parameter]) -> bool:
    sizes = [p.value for p in parameters if isinstance(p.value, Expression) and p.value.sizes]
    return len(frozenset().union(*(size.sizes for size in sizes))) == 1 if sizes else False
