"""Removes the branches of C source that a build never compiles, as unifdef does."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

_DIRECTIVE = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", re.DOTALL)
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TOKEN = re.compile(r"&&|\|\||!(?!=)|[()]|\w+|[^\s\w&|!()]+|\S")


class _Directive(NamedTuple):
    word: str
    condition: str
    line: str


def active(text: str, defined: Collection[str]) -> str:
    """The text with empty lines in place of branches that #ifdef and #ifndef leave out. Other
    conditions are not decided."""
    lines, open_branches = [], list[bool | None]()
    for line in text.split("\n"):
        directive = _DIRECTIVE.match(line)
        if directive is None:
            lines.append("" if False in open_branches else line)
            continue
        word, name = directive[1], directive[2].strip()
        if word in ("ifdef", "ifndef"):
            open_branches.append((name in defined) == (word == "ifdef"))
        elif word == "if":
            open_branches.append(None)
        elif word == "endif" and open_branches:
            open_branches.pop()
        elif open_branches:  # #else or #elif
            before = open_branches[-1]
            undecided = before is None or word == "elif"
            open_branches[-1] = None if undecided else not before
        lines.append(line)
    return "\n".join(lines)


def pruned(text: str, defined: Mapping[str, bool]) -> str:
    """The text without the branches that are never compiled.

    ``defined`` has the macros that are known to be defined (True) or not (False). A condition on
    other macros stays.
    Raises ValueError for a condition that tests these macros and others without being decided by
    these, and for directives that do not match.
    """
    # A backslash at the end of a line joins the next line to it.
    lines = iter(re.findall(r"(?:[^\n]*\\\n)*[^\n]*\n|[^\n]+\Z", text))
    kept, end = _branch(lines, defined)
    if end is not None:
        raise ValueError(f"#{end.word} without #if")
    return kept


def _branch(lines: Iterator[str], defined: Mapping[str, bool]) -> tuple[str, _Directive | None]:
    """The pruned lines before the #elif, #else or #endif that ends this branch, and that directive;
    None at the end of the text."""
    kept = []
    for line in lines:
        match = _DIRECTIVE.match(line)
        if match is None:
            kept.append(line)
            continue
        condition = _COMMENT.sub(" ", match[2].replace("\\\n", " ")).strip()
        directive = _Directive(match[1], condition, line)
        if not directive.word.startswith("if"):
            return "".join(kept), directive
        kept.append(_chain(directive, lines, defined))
    return "".join(kept), None


def _chain(first: _Directive, lines: Iterator[str], defined: Mapping[str, bool]) -> str:
    """What remains of one #if ... #elif ... #else ... #endif."""
    kept: list[str] = []
    settled = False  # by a branch that is always compiled
    directive = first
    while directive.word != "endif":
        body, end = _branch(lines, defined)
        if end is None:
            raise ValueError(f"no #endif for {first.line.strip()}")
        holds = False if settled else _holds(directive, defined)
        if holds is None and directive.word == "elif" and not kept:
            kept += [f"#if {directive.condition}\n", body]
        elif holds is None:
            kept += [directive.line, body]
        elif holds and kept:
            kept += ["#else\n", body]
        elif holds:  # the only branch, so it needs no condition
            _skip(lines, end, defined)
            return body
        settled = settled or holds is True
        directive = end
    return "".join([*kept, directive.line]) if kept else ""


def _skip(lines: Iterator[str], directive: _Directive, defined: Mapping[str, bool]) -> None:
    """Passes the rest of a chain."""
    while directive.word != "endif":
        _, end = _branch(lines, defined)
        if end is None:
            raise ValueError(f"no #endif after {directive.line.strip()}")
        directive = end


def _holds(directive: _Directive, defined: Mapping[str, bool]) -> bool | None:
    """Whether the branch is compiled; None if that depends on other macros."""
    word, condition, line = directive
    if word == "else":
        return True
    if word in ("ifdef", "ifndef"):
        known = defined.get(condition)
        return known if known is None or word == "ifdef" else not known
    tokens = _TOKEN.findall(condition)
    value = _disjunction(tokens, defined)
    if tokens:
        raise ValueError(f"unbalanced parentheses: {line.strip()}")
    tested = re.findall(r"defined\s*\(?\s*(\w+)", condition)
    if value is None and any(name in defined for name in tested):
        raise ValueError(f"other macros decide this: {line.strip()}")
    return value


def _disjunction(tokens: list[str], defined: Mapping[str, bool]) -> bool | None:
    values = [_conjunction(tokens, defined)]
    while tokens and tokens[0] == "||":
        del tokens[0]
        values.append(_conjunction(tokens, defined))
    return True if True in values else None if None in values else False


def _conjunction(tokens: list[str], defined: Mapping[str, bool]) -> bool | None:
    values = [_term(tokens, defined)]
    while tokens and tokens[0] == "&&":
        del tokens[0]
        values.append(_term(tokens, defined))
    return False if False in values else None if None in values else True


def _term(tokens: list[str], defined: Mapping[str, bool]) -> bool | None:
    value: bool | None = None
    if tokens[:1] == ["!"]:
        del tokens[0]
        value = _term(tokens, defined)
        return None if value is None else not value
    if tokens[:1] == ["defined"]:
        name = tokens[2] if tokens[1] == "(" else tokens[1]
        del tokens[: 4 if tokens[1] == "(" else 2]
        value = defined.get(name)
    elif tokens[:1] == ["("]:
        del tokens[0]
        value = _disjunction(tokens, defined)
        del tokens[:1]
    depth = 0
    while tokens and (depth or tokens[0] not in ("&&", "||", ")")):  # arithmetic
        depth += {"(": 1, ")": -1}.get(tokens[0], 0)
        value = None
        del tokens[0]
    return value
