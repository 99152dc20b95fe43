"""Finds in device code what only the host has: functions, variables and types.

The machine's C++ compiler has no such distinction, so a scan of the text makes it. Where the text
does not tell, for example for an overloaded name, nothing is reported.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from . import plain_text
from .expressions import constants_of
from .plain_text import Declaration

_DEVICE = r"\b(?:__device__|__global__|KERNEL_BODY|COPY_FUNCTION)\b"
_ON_BOTH = re.compile(r"\b(?:constexpr|consteval)\b|=\s*(?:default|delete)\s*$")
_CLASS = re.compile(r"\b(?:struct|class|union)\s+(?:alignas\s*\([^()]*\)\s*)?(\w+)[^;{}()=]*$")
_VARIABLE = re.compile(
    r"[\w>*&\]]\s*[\s*&]\s*(\w+)\s*((?:\[[^\]]*\]\s*)*)(?:=.*|\{.*)?$", re.DOTALL
)
_NO_VARIABLE = re.compile(
    r"\s*(?:using|typedef|template|friend|static_assert|namespace|extern\s*$|enum|struct|class|union|"
    r"public|private|protected|return)\b"
)
_NAME = re.compile(r"(operator\s*\(\s*\)|operator\s*[^\s\w(]+|~?\w+)\s*\(")
_LAMBDA = re.compile(r"(\w+)\s*=\s*\[[^\]]*\]\s*[({]?")
_PROTOTYPE = re.compile(r"(?!\s*(?:using|typedef|friend|static_assert|return)\b)[^=({]*\(")
_OBJECT = re.compile(r"(\w+)\s*\(\s*[-\d.\"][^()]*\)\s*$")
_SCALAR = re.compile(r"\bconst\b")
_TYPES = (
    "vector|string|string_view|map|unordered_map|set|unordered_set|list|deque|array|tuple|function|"
    "optional|variant|any|span|complex|valarray|bitset|unique_ptr|shared_ptr|make_unique|"
    "make_shared|thread|mutex|lock_guard|atomic|future|async|chrono|mt19937|random_device|"
    "uniform_real_distribution|cout|cerr|clog|endl|ostream|istream|stringstream|ostringstream|"
    "ofstream|ifstream|to_string|runtime_error|sort|accumulate|inner_product|fill|fill_n|copy|"
    "copy_n|transform|for_each|max_element|min_element|iota|reverse|rotate|min|max|clamp|swap|"
    "exchange|rand|exit|getenv"
)
_STD = re.compile(rf"\b(std::(?:{_TYPES}))\b")
_LIBRARY = re.compile(
    r"(?<![\w.>:])((?:rand|srand|exit|getenv|system|fopen|fclose|fprintf|fputs|fwrite|scanf|usleep|"
    r"sleep|gettimeofday|clock_gettime|pthread_\w+|omp_\w+)(?=\s*\()|typeid\b|dynamic_cast\b|"
    r"thread_local\b)"
)
_TYPE_WORDS = (
    "float|int|unsigned|double|char|auto|const|long|short|bool|void|size_t|half|u?int[0-9]+_t|"
    "(?:float|u?int|double)[1-4]|T"
)
_NO_TYPES = "return|else|case|goto|sizeof|new|delete|throw|and|or|not|do|in"
_INSTEAD = {"std::min": "min", "std::max": "max"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class HostUse:
    """A place in device code that no compiler for a GPU accepts."""

    file: str
    line: int
    text: str


@dataclass
class _Names:
    """What a text declares, by name."""

    functions: set[str] = field(default_factory=set)
    """Functions that only the host can call."""
    methods: set[str] = field(default_factory=set)
    """The same of classes."""
    device: set[str] = field(default_factory=set)
    kernels: set[str] = field(default_factory=set)
    variables: dict[str, str] = field(default_factory=dict)
    """Variables that only the host has, with what they are."""
    classes: dict[str, str] = field(default_factory=dict)
    """Classes whose constructor or operator only the host can call, with that function."""
    bodies: list[tuple[Declaration, str]] = field(default_factory=list)
    """Functions that run on the device, and the text in which their names may be declared."""


def host_uses(text: str, file: str) -> list[HostUse]:
    """The first use of each host function, host variable and host type in device code."""
    code = plain_text.code_of(text)
    marker = re.compile(f"{_DEVICE}|{plain_text.markers(text).pattern}")
    names = _Names()
    _collect(code, 0, "", marker, names)
    names.functions -= names.device
    names.methods -= names.device
    constants = constants_of(plain_text.masked(text), {})
    found: dict[str, tuple[int, str]] = {}
    for body, around in names.bodies:
        for at, name, what in _uses(code[body.begin : body.end], around, names, constants, code):
            found.setdefault(name, (body.begin + at, what))
    places = sorted(found.values())
    return [
        HostUse(plain_text.file_of(text, at, file), plain_text.line_of(text, at), what)
        for at, what in places
    ]


def _collect(code: str, begin: int, name: str, marker: "re.Pattern[str]", names: _Names) -> None:
    """Adds what the text declares, at file level or in the class of this name. The text begins at
    position ``begin`` of the file."""
    for each in plain_text.declarations(code):
        head = re.sub(r"\b(?:public|private|protected)\s*:(?!:)", _blank, each.head)
        on_device = bool(marker.search(head))
        here = Declaration(begin + each.begin, begin + each.end, head, each.is_function, "")
        if lambda_ := _LAMBDA.search(head):
            if not on_device and not _ON_BOTH.search(head):
                names.variables[lambda_[1]] = "variable"
        elif each.is_function or _PROTOTYPE.match(head):
            made = _OBJECT.search(head)
            if made is not None and not (on_device or name):
                names.variables[made[1]] = "variable"
            elif each.is_function or name or on_device:
                _add_function(here, code, name, on_device, names)
        elif (inner := _CLASS.search(head.partition("{")[0])) and "{" in head:
            opens = each.head.index("{")
            closes = plain_text.after(each.head, opens, "{", "}")
            _collect(
                each.head[opens + 1 : closes - 1], here.begin + opens + 1, inner[1], marker, names
            )
        elif not on_device and not name and not _NO_VARIABLE.match(head):
            _add_variable(head, names)


def _blank(found: "re.Match[str]") -> str:
    return " " * len(found[0])


def _add_function(
    each: Declaration, around: str, of_class: str, on_device: bool, names: _Names
) -> None:
    named = _NAME.search(plain_text.without_attributes(each.head))
    if named is None:
        return
    name = re.sub(r"\s", "", named[1])
    if re.search(r"\b__global__\b", each.head):
        names.kernels.add(name)
    if on_device or _ON_BOTH.search(each.head):
        names.device.add(name)
        if of_class:
            names.device.add(f"{of_class}::{name}")
        if on_device and each.is_function:
            names.bodies.append((each, around if of_class else ""))
    elif of_class and (name == of_class or name.startswith("operator")):
        names.classes.setdefault(of_class, name)
    elif not name.startswith("~"):
        (names.methods if of_class or "::" in each.head[: named.start()] else names.functions).add(
            name
        )


def _add_variable(head: str, names: _Names) -> None:
    declared = head.strip()
    if "(" in declared.partition("=")[0] and "[" not in declared.partition("(")[0]:
        return  # a prototype, or an object with arguments
    first = declared.partition(",")[0] if "{" not in declared and "=" not in declared else declared
    found = _VARIABLE.match(first) or _VARIABLE.search(first)
    if found is None:
        return
    is_array = bool(found[2])
    if re.search(r"\bconstexpr\b", declared):
        if is_array:
            names.variables[found[1]] = "constexpr array"
    elif is_array:
        names.variables[found[1]] = "array"
    elif not (_SCALAR.search(declared) and re.search(r"[={]", declared)) or "*" in declared:
        names.variables[found[1]] = "variable"


def _uses(
    body: str, around: str, names: _Names, constants: Mapping[str, int], code: str
) -> Iterator[tuple[int, str, str]]:
    """The position, the name and the description of each use of something of the host."""
    opens = body.index("{")
    for found in _STD.finditer(body, opens):
        instead = _INSTEAD.get(found[1])
        advice = f"write {instead}" if instead else "device code cannot use it"
        yield found.start(), found[1], f"{found[1]} is for the host: {advice}"
    for found in _LIBRARY.finditer(body, opens):
        yield found.start(), found[1], f"{found[1]} is for the host: device code cannot use it"
    for found in _IDENTIFIER.finditer(body, opens):
        name = found[0]
        before = body[: found.start()]
        if name in names.functions | names.methods and _is_call(body, found):
            kind = names.methods if around else names.functions
            if re.search(r"(?:\.|->)\s*$", before):
                kind = names.methods
            elif qualifier := re.search(r"(\w+)\s*::\s*$", before):
                of_class = re.search(rf"\b(?:struct|class)\s+{qualifier[1]}\b", code)
                of_space = re.search(rf"\bnamespace\s+{qualifier[1]}\b", code)
                kind = names.methods if of_class else names.functions if of_space else set()
            if name in kind and not _is_declared(name, body):
                text = f"{name} is a function of the host: write __device__ before it"
                yield found.start(), name, text
        elif name in names.kernels and _is_call(body, found) and _is_read(body, found):
            text = f"{name} is a __global__ function, which device code cannot call"
            yield found.start(), name, text
        elif name in names.classes and re.match(r"\s*(?:\w+\s*[;({=\[]|[({])", body[found.end() :]):
            function = names.classes[name]
            if f"{name}::{function}" not in names.device:
                text = f"{function} of {name} is a function of the host: write __device__ before it"
                yield found.start(), name, text
        elif name in names.variables and _is_read(body, found):
            if _is_declared(name, body) or (around and _is_declared(name, around)):
                continue
            variable = names.variables[name]
            if variable == "constexpr array" and not _varies(body[found.end() :], constants):
                continue
            text = f"{name} is {'an array' if 'array' in variable else 'a variable'} of the host: "
            yield found.start(), name, text + "write __constant__ or __device__ before it"


def _is_call(body: str, found: "re.Match[str]") -> bool:
    return bool(re.match(r"\s*(?:<[^;{}()]*>\s*)?\(", body[found.end() :]))


def _is_read(body: str, found: "re.Match[str]") -> bool:
    return not re.search(r"(?:\.|->|\w\s*::)\s*$", body[: found.start()])


def _is_declared(name: str, body: str) -> bool:
    """Whether a function's text declares a parameter or a variable of this name."""
    pointer = rf"\b(?:{_TYPE_WORDS})\s*[*&]+\s*(?:(?:const|__restrict__|__restrict)\s+)*{name}\b"
    value = rf"(?<!\w)(?!(?:{_NO_TYPES})\b)\w+(?:<[^;{{}}()]*>)?\s+{name}\s*(?:[=;,\[({{)]|:(?!:))"
    another = rf"\b(?:{_TYPE_WORDS})\s[^;{{}}()]*,\s*{name}\s*[=;,\[]"
    return any(re.search(pattern, body) for pattern in (pointer, value, another))


def _varies(rest: str, constants: Mapping[str, int]) -> bool:
    """Whether the index of an array, which follows, is no constant."""
    index = re.match(r"\s*\[([^\]]*)\]", rest)
    return index is not None and any(
        name not in constants for name in _IDENTIFIER.findall(index[1])
    )
