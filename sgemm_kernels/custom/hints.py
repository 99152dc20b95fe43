"""What to do about a compiler's messages, or about an unclear launch, of a plain kernel."""

import re
from collections.abc import Collection, Sequence

from . import plain_text
from .expressions import constants_of

_UNKNOWN = re.compile(
    r"'(?:\w+::)*(\w+)[^'\n]*' "
    r"(?:was not declared|has not been declared|does not name|is not a member)|"
    r"has no member named '(\w+)'|use of undeclared identifier '(\w+)'|no member named '(\w+)'|"
    r"unknown type name '(\w+)'"
)
_STANDARD = re.compile(
    r"(?:cuda|cublas|curand|cooperative_groups|mma\b|nv|device_|sm_|vector_|math|std|string|limits|"
    r"float|assert|time|sys/|unistd|errno|ctype|builtin_types|helper_)[\w./]*|[\w/]+"
)


def compile_hint(text: str, file: str, left_out: Sequence[str], messages: str) -> str:
    """Lines to add to a compiler's messages about something unknown."""
    names = [next(filter(None, found)) for found in _UNKNOWN.findall(messages)]
    for name in names:
        if name in plain_text.host_functions(text):
            return f"\n{name} is a function of the host: write __device__ before it"
        if re.match(r"cu(da|blas|rand)?[A-Z]\w+|cublas\w+", name):
            return f"\n{name} is for host code, and this is device code: remove it here"
    if not names:
        return ""
    missing = missing_hint(file, left_out)
    if missing:
        return f"\n{missing}: it may declare {names[0]}"
    known = constants_of(plain_text.masked(text), {})
    if names[0].isupper() and names[0] not in known:
        return f"\n{defines_hint(names[0], file)}: no #define in the file sets it"
    return (
        f"\nIf {names[0]} is part of CUDA, the CPU device, which checks the kernel, lacks it: "
        "the documentation of custom kernels lists what it has"
    )


def defines_hint(name: str, file: str) -> str:
    return f"{name} has no value in {file}: pass one, such as defines={{'{name}': 16}}"


def missing_hint(file: str, left_out: Sequence[str]) -> str:
    """Names the files that are included and were not found; empty if there are none."""
    if not left_out:
        return ""
    names = " and ".join(left_out)
    return f"{file} includes {names}, which {'is' if len(left_out) == 1 else 'are'} not found here"


def launch_hint(text: str, file: str, left_out: Sequence[str], message: str) -> str:
    """What to add to an error about an expression."""
    unknown = re.search(r"(\w+) is neither M, N or K nor", message)
    if unknown is None:
        return ""
    if re.search(rf"\b{unknown[1]}\b", plain_text.masked(text)):
        return f"; {defines_hint(unknown[1], file)}"
    missing = missing_hint(file, left_out)
    return f"; {missing}" if missing else ""


def left_out(text: str, found: Collection[str]) -> list[str]:
    """The files that a text includes and that are neither found nor CUDA's or the system's."""
    quoted = re.findall(
        r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)',
        plain_text.masked_comments(text),
        re.MULTILINE,
    )
    names = [
        f'"{own}"' if own else f"<{system}>"
        for own, system in quoted
        if not _STANDARD.fullmatch(own or system)
        and own not in plain_text.PACKAGE_HEADERS
        and own.rpartition("/")[2] not in found
    ]
    return list(dict.fromkeys(names))


def empty_macros(text: str) -> list[str]:
    """The macros without a value that the code uses as if they had one."""
    code = plain_text.code_of(text)
    names = re.findall(
        r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]*$", plain_text.masked(text), re.MULTILINE
    )
    value = r"(?:[-+*/%=<(,\[]\s*{0}\b(?!\s*\w)|\b{0}\s*[-+*/%\])<,])"
    return [name for name in names if re.search(value.format(name), code)]
