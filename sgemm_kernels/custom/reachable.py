"""Leaves out of device code what one kernel does not use: other kernels, and their functions."""

import re

from . import plain_text
from .plain_text import Declaration

_WORD = re.compile(r"[A-Za-z_]\w*")
_COMMON = frozenset(
    _WORD.findall(
        "float double int unsigned signed long short char bool void const constexpr static inline "
        "extern volatile auto size_t struct class union enum typedef using namespace template "
        "typename __device__ __global__ __host__ __forceinline__ __constant__ __shared__"
    )
)
_NAME = re.compile(r"(operator\s*[^\s\w(]+|operator\s*\(\s*\)|\w+)\s*(?:<[^()]*>)?\s*\(")


def only_for(text: str, call: str) -> str:
    """Device code without what the ``__global__`` function does not use. ``call`` is the function
    with its template arguments."""
    code = plain_text.code_of(text)
    every = list(plain_text.declarations(code))
    names = [_names(each) for each in every]
    macros = plain_text.macros_of(text)
    words: set[str] = set()
    waiting = set(_WORD.findall(call))
    while waiting:
        words |= waiting
        more = set(_WORD.findall(" ".join(macros.get(word, "") for word in waiting)))
        for each, declared in zip(every, names, strict=True):
            if declared & waiting:
                more |= set(_WORD.findall(code[each.begin : each.end]))
        waiting = more - words - _COMMON
    unused = [
        (each.begin, each.end)
        for each, declared in zip(every, names, strict=True)
        if declared and not declared & words
    ]
    return plain_text.without(text, unused)


def _names(each: Declaration) -> set[str]:
    """The names whose use needs this declaration; empty for one that always stays."""
    if each.is_function:
        named = _NAME.search(plain_text.without_attributes(each.head))
        return set() if named is None or named[1].startswith("operator") else {named[1]}
    head = each.head.strip()
    of_class = re.match(
        r"(?:template\s*<.*?>\s*)?(?:struct|class|union)\s+(\w+)[^;{=]*\{", head, re.S
    )
    if of_class:
        return {of_class[1], *_WORD.findall(head.rpartition("}")[2])}
    if re.match(r"static_assert\b|using\s+namespace\b", head) and not plain_text.lacking(head):
        return set()
    return set(_WORD.findall(head)) - _COMMON
