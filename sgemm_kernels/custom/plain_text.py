"""The text of a plain CUDA file, made ready for a compiler: without host code and host headers.

Every transformation keeps the lines of the file, so that messages have the right numbers.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .preprocessor import active
from .shared_members import with_names

_HIDDEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
PACKAGE_HEADERS = ("ptx.h", "split_fp16.h")
"""Headers of this package that a plain kernel may include: asynchronous copies, mbarriers, and
tensor cores."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:<([^>\n]+)>|"([^"\n]+)")[^\n]*', re.MULTILINE)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\([^)]*\))?((?:[^\n]*\\\n)*[^\n]*)", re.M)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once[^\n]*", re.MULTILINE)
_DYNAMIC = re.compile(
    r"\bextern\s+__shared__\s+((?:(?:__align__|alignas|__attribute__)\s*\((?:[^()]|\([^()]*\))*\)\s*)?)"
    r"((?:[\w:]+(?:<[^<>;]*>)?\s+)+?)((?:__align__|alignas)\s*\([^()]*\)\s*)?(\w+)\s*\[\s*\]\s*;"
)
_STATIC_SHARED = re.compile(r"\bstatic[ \t]+__shared__[ \t]+|\b__shared__[ \t]+static[ \t]+")
_ALIGNED_SHARED = re.compile(r"\b(__shared__)[ \t]+(alignas[ \t]*\((?:[^()\n]|\([^()\n]*\))*\))")
_CUDA_HEADERS = re.compile(
    r"cooperative_groups(\.h|/.*)|cuda/.*|cuda_(pipeline|awbarrier)(_\w+)?\.h|"
    r"cuda_(fp16|bf16|fp8)\.h|mma\.h"
)
"""Headers that device code needs. A GPU's compiler has them; csrc/custom/ replaces some of them on
the CPU device."""
_GROUPS = re.compile(r"cooperative_groups|cuda/(barrier|pipeline|std)|cuda_(pipeline|awbarrier)")
_HOST_TYPES = re.compile(
    r"\b((?:cuda|curand|cusolver|nvtx)[A-Z]\w*|cublas\w*|(?:thrust|torch|at|cutlass|boost|pybind11)::"
    r"\w+|FILE|ifstream|ofstream|timeval|timespec|clock_t|time_t|"
    r"std::(?!u?int\w*_t\b|size_t\b|ptrdiff_t\b|is_\w+|enable_if\w*|conditional\w*|\w+_type\b|"
    r"integral_constant\b|true_type\b|false_type\b|remove_\w+|decay\w*|common_type\w*|void_t\b|"
    r"declval\b|numeric_limits\b)\w+)\b"
)
_TYPE = re.compile(r"(template\s*<.*>\s*)?(typedef\s+)?(struct|class|union|enum)\b", re.DOTALL)
_ATTRIBUTE = re.compile(
    r"\b(?:__launch_bounds__|__attribute__|__align__|alignas|__maxnreg__|__cluster_dims__|decltype|"
    r"noexcept|explicit)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)"
)
_ACCESS = re.compile(r"\b(public|private|protected)\s*:(?!:)")
_KEPT = re.compile(r"(using\s+(?!namespace\s+std\b|std::)|typedef\b|static_assert\b|extern\b)")

_LACKING = (
    (r"\basm\b|\b__asm__\b", "inline PTX other than mma.sync.m16n8k16 of fp16", "call a CUDA "
     "function instead, such as fmaf, __ldg, __shfl_sync, or __pipeline_memcpy_async for "
     "cp.async"),
    (r"\bwmma\b|\bnvcuda\b", "tensor cores through nvcuda::wmma", "compute in float, or start from "
     "the rung mma: sgemm-kernels new mine.cu --like mma"),
    (r"\b(__half2?|__nv_bfloat16\w*|nv_bfloat16\w*)\b", "16-bit floating-point types",
     "compute in float, or pack the bits for mma.sync: __half_as_ushort(__float2half_rn(x))"),
    (r"\b(tex1D\w*|tex2D\w*|texture\s*<|cudaTextureObject_t|surf\dD\w*)", "textures",
     "read global memory through a pointer, or __ldg"),
    (r"\b(this_cluster|cluster_group|__cluster_dims__)\b", "clusters in a plain kernel",
     "write the file with kernel.h: its KernelSpec has a field .cluster"),
    (r"<<<", "a launch from device code", "launch one kernel, and call __device__ functions from "
     "it"),
    (r"\b__managed__\b", "managed variables", "pass a pointer, or declare the variable __device__"),
    (r"\bcuda::atomic(_ref)?\b", "cuda::atomic", "use atomicAdd, atomicCAS or atomicExch"),
    (r"\bcp_async_bulk\w*|\bCUtensorMap\b", "TMA in a plain kernel", "start from the rung tma"),
)  # fmt: skip
"""What the CPU device lacks: a pattern, its name, and an alternative."""


_RETURNS = re.compile(
    r"\b__device__(?=((?:\s+(?:__\w+__|static|inline|constexpr))*)\s+"
    r"(?P<type>\w[\w:<>,\s]*?)\s+(?P<name>\w+|operator[^\w\s(]+)\s*(?=\())"
)
"""A `__device__` function that returns a value."""
_SCALAR = re.compile(
    r"(?:(?:const|void|bool|char|short|int|long|float|double|unsigned|signed|size_t"
    r"|u?int\d+_t)\s*)+"
)


class UnsupportedCodeError(ValueError):
    """Code that the CPU device cannot run. The message has the line and an alternative."""


@dataclass(frozen=True)
class Function:
    """A `__global__` function."""

    name: str  # with its namespaces
    parameters: str
    template: str  # the template's parameters; empty without a template
    line: int
    body: str
    file: str = ""  # that it is in; empty for the kernel's own


@dataclass(frozen=True)
class Declaration:
    begin: int
    end: int
    head: str
    is_function: bool  # with a body
    namespace: str


def masked(text: str) -> str:
    """The text with spaces in place of comments, strings and characters."""
    return _HIDDEN.sub(lambda found: _spaces(found[0]), text)


def _spaces(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def flattened(text: str, file: str, beside: Sequence[Path], included: Mapping[Path, str]) -> str:
    """The text with the included files in place of their #include lines."""
    return _flattened(text, file, beside, included, set(), 0)


def _flattened(
    text: str,
    file: str,
    beside: Sequence[Path],
    included: Mapping[Path, str],
    once: set[Path],
    depth: int,
) -> str:
    parts = []
    end = 0
    hidden = masked_comments(text)
    for found in _INCLUDE.finditer(hidden):
        if found[2] is None or depth > 20:
            continue
        parts.append(text[end : found.start()])
        end = found.end()
        for folder in beside:
            path = Path(os.path.normpath(folder / found[2]))
            if path in included:
                if path not in once:
                    inner = included[path]
                    if _ONCE.search(inner):
                        once.add(path)
                    inner = _flattened(
                        inner, path.name, [path.parent, *beside], included, once, depth + 1
                    )
                    line = text.count("\n", 0, found.start()) + 2
                    parts.append(f'#line 1 "{path.name}"\n{inner}\n#line {line} "{file}"')
                    # the directive's own line break follows
                break
        else:
            parts.append(found[0] if found[2] in PACKAGE_HEADERS else "")
    parts.append(text[end:])
    return "".join(parts)


def masked_comments(text: str) -> str:
    """The text with spaces in place of comments only."""
    return _HIDDEN.sub(
        lambda found: _spaces(found[0]) if found[0].startswith(("//", "/*")) else found[0], text
    )


def line_of(text: str, position: int) -> int:
    """The line number of a position in a flattened text: #line directives count."""
    before = text[:position]
    places = list(re.finditer(r'^#line (\d+) "[^"\n]*"\n', before, re.MULTILINE))
    if not places:
        return before.count("\n") + 1
    return int(places[-1][1]) + before.count("\n", places[-1].end())


def file_of(text: str, position: int, file: str) -> str:
    """The file of a position in a flattened text."""
    names = re.findall(r'^#line \d+ "([^"\n]*)"\n', text[:position], re.MULTILINE)
    return names[-1] if names else file


def declarations(code: str) -> Iterator[Declaration]:
    """The declarations of a masked text at file or namespace level."""
    begin = at = 0
    spaces: list[str] = []
    while at < len(code):
        letter = code[at]
        if letter == "(":
            at = after(code, at, "(", ")")
            continue
        if letter == ";":
            yield Declaration(begin, at + 1, code[begin:at], False, "::".join(filter(None, spaces)))
            begin = at + 1
        elif letter == "}":
            if spaces:
                spaces.pop()
            begin = at + 1
        elif letter == "{":
            head = code[begin:at]
            stripped = head.strip()
            named = re.fullmatch(r"(?:inline\s+)?namespace\s*([\w:]*)", stripped)
            if named or stripped == "extern":
                spaces.append(named[1] if named else "")
                begin = at + 1
            else:
                end = after(code, at, "{", "}")
                if _is_function(stripped):
                    namespace = "::".join(filter(None, spaces))
                    yield Declaration(begin, end, head, True, namespace)
                    begin = end
                at = end
                continue
        at += 1


def _is_function(head: str) -> bool:
    if "(" not in head or _TYPE.match(head):
        return False
    bare = re.sub(r"\b(const|noexcept|override|final|mutable)\b|->\s*[\w:<>,\s*&]+$", "", head)
    return bare.rstrip().endswith(")") and not re.search(r"[^=!<>]=\s*$", head)


def after(code: str, at: int, opens: str, closes: str) -> int:
    """The position after the bracket that closes the one at ``at``."""
    depth = 0
    for found in re.finditer(rf"[{re.escape(opens + closes)}]", code[at:]):
        depth += 1 if found[0] == opens else -1
        if depth == 0:
            return at + found.end()
    return len(code)


def code_of(text: str) -> str:
    """The masked text without directives."""
    return _DIRECTIVE.sub(lambda found: _spaces(found[0]), masked(text))


def macros_of(text: str) -> dict[str, str]:
    """What the macros of a text mean."""
    return {each[1]: each[2] for each in _MACRO.finditer(masked(text))}


def markers(text: str) -> "re.Pattern[str]":
    """What marks device code: the qualifiers, and macros that expand to them."""
    macros = [
        name for name, means in macros_of(text).items() if re.search(r"__(device|global)__", means)
    ]
    names = ["__device__", "__global__", "__constant__", "__shared__", *macros]
    return re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")


def functions(text: str) -> list[Function]:
    """The `__global__` functions that a flattened text defines."""
    code = code_of(text)
    macros = {name: means for name, means in macros_of(text).items() if "__global__" in means}
    found = []
    for each in declarations(code):
        head = re.sub(r"\w+", lambda word: macros.get(word[0], word[0]), each.head)
        if each.is_function and re.search(r"\b__global__\b", head):
            opens = _parameters_at(head)
            name = re.search(r"(\w+)\s*$", head[:opens])
            if name is None:
                continue
            template = re.match(r"\s*template\s*<(.*?)>\s*(?:static|extern|inline|__)", head, re.S)
            closes = after(head, opens, "(", ")")
            full = f"{each.namespace}::{name[1]}" if each.namespace else name[1]
            named = re.search(rf"\b{name[1]}\s*\(", each.head)
            place = each.begin + (named.start() if named else 0)
            found.append(
                Function(
                    full,
                    head[opens + 1 : closes - 1],
                    template[1] if template else "",
                    line_of(text, place),
                    code[each.begin + len(each.head) : each.end],
                    file_of(text, place, ""),
                )
            )
    return found


def without_attributes(head: str) -> str:
    """The head of a function with spaces in place of attributes with arguments."""
    return _ATTRIBUTE.sub(lambda found: _spaces(found[0]), head)


def _parameters_at(head: str) -> int:
    """The position of the parenthesis that opens the parameters."""
    at = head.find("__global__")
    while True:
        at = head.find("(", at)
        if not re.search(
            r"\b(__launch_bounds__|__attribute__|__align__|alignas|__maxnreg__|__block_size__)\s*$",
            head[:at],
        ):
            return at
        at = after(head, at, "(", ")")


def device_code(text: str) -> str:
    """A flattened text without host functions, host variables, and headers of the host."""
    code = code_of(text)
    marker = markers(text)
    hosts = host_functions(text) | {"atoi", "atof", "strtol", "getenv", "time", "rand", "clock"}
    gone: list[tuple[int, int]] = []
    for each in declarations(code):
        head = each.head.strip()
        if not each.is_function and "{" in head and _TYPE.match(head):
            if _HOST_TYPES.search(_fields(each.head)):
                gone.append((each.begin, each.end))
            else:
                gone += _host_members(code, each, marker)
            continue
        if not head or marker.search(head):
            if re.match(r"template\s+(?!<)", head):  # an explicit instantiation
                gone.append((each.begin, each.end))
            continue
        if each.is_function:
            if not re.search(r"\b(constexpr|consteval)\b", head):
                gone.append((each.begin, each.end))
        elif (
            re.match(r"template\s+(?!<)|using\s+(namespace\s+std\b|std::)", head)
            or _HOST_TYPES.search(head)
            or (head.endswith(")") and not _KEPT.match(head) and "=" not in head)
            or any(name in hosts for name in re.findall(r"(\w+)\s*\(", head.partition("=")[2]))
        ):
            gone.append((each.begin, each.end))
    kept = _ONCE.sub(lambda found: _spaces(found[0]), without(text, gone))

    def stays(header: str | None, quoted: str | None) -> bool:
        return quoted in PACKAGE_HEADERS or bool(header and _CUDA_HEADERS.fullmatch(header))

    return _INCLUDE.sub(lambda found: found[0] if stays(found[1], found[2]) else "", kept)


def _fields(head: str) -> str:
    """A class without the functions in it."""
    opens = head.index("{") + 1
    inner = list(declarations(head[opens : after(head, opens - 1, "{", "}") - 1]))
    return "; ".join([head[:opens], *(each.head for each in inner if not _is_method(each))])


def _is_method(each: Declaration) -> bool:
    head = without_attributes(each.head)
    return each.is_function or ("(" in head and not re.search(r"[={]", head))


def _host_members(
    code: str, of: Declaration, marker: "re.Pattern[str]"
) -> Iterator[tuple[int, int]]:
    """The functions of a class that only the host can call."""
    opens = of.begin + of.head.index("{") + 1
    closes = after(code, opens - 1, "{", "}") - 1
    for each in declarations(code[opens:closes]):
        head = _ACCESS.sub(lambda found: _spaces(found[0]), each.head)
        both = re.search(r"\b(constexpr|consteval)\b|=\s*(default|delete)\s*$", head)
        if _is_method(each) and not marker.search(head) and not both:
            label = len(each.head) - len(head.lstrip())
            yield opens + each.begin + label, opens + each.end


def without(text: str, gone: Sequence[tuple[int, int]]) -> str:
    """The text with empty lines in these places. Directives stay, so that #if and #endif match."""
    parts = []
    end = 0
    for begin, stop in gone:
        lines = text[begin:stop].split("\n")
        parts.append(text[end:begin])
        parts.append("\n".join(line if line.lstrip().startswith("#") else "" for line in lines))
        end = stop
    return "".join([*parts, text[end:]])


def aliases_of(code: str) -> dict[str, str]:
    """The types that the names of typedef, using and #define mean, if they are simple."""
    found = {}
    for name, meant in re.findall(r"\busing\s+(\w+)\s*=\s*([\w\s*:]+);", code):
        found[name] = meant.strip()
    for meant, name in re.findall(r"\btypedef\s+([\w\s*:]+?)\s*\b(\w+)\s*;", code):
        found[name] = meant.strip()
    for name, meant in re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)", code, re.M):
        if re.fullmatch(
            r"(?:const\s+|unsigned\s+)*(?:float|double|int|unsigned|long|short)"
            r"(?:\s+(?:int|long))?\s*\*?",
            meant.strip(),
        ):
            found[name] = meant.strip()
    return found


def host_functions(text: str) -> set[str]:
    """The names of the functions of a flattened text that only the host can call."""
    code = code_of(text)
    marker = markers(text)
    heads = [each.head for each in declarations(code) if each.is_function]
    heads = [head for head in heads if not re.search(rf"{marker.pattern}|\bconstexpr\b", head)]
    return {found[1] for head in heads if (found := re.search(r"(\w+)\s*\(", head))}


def package_headers(text: str) -> list[str]:
    """The headers of this package that a text includes. The launcher includes them first, outside
    the namespace of the text."""
    included = [found[2] for found in _INCLUDE.finditer(masked_comments(text))]
    return [name for name in PACKAGE_HEADERS if name in included]


def cuda_headers(text: str) -> list[str]:
    """CUDA's headers that a text includes."""
    every = [found[1] for found in _INCLUDE.finditer(masked_comments(text)) if found[1]]
    return [name for name in dict.fromkeys(every) if _CUDA_HEADERS.fullmatch(name)]


def includes_groups(text: str) -> bool:
    """Whether the text uses cooperative groups, cuda::barrier or a pipeline."""
    return _GROUPS.search(masked_comments(text)) is not None


def lacking(code: str) -> "tuple[re.Match[str], str, str] | None":
    """The first thing in a masked text that the CPU device lacks, its name, and an alternative."""
    for pattern, what, instead in _LACKING:
        # Without its header, `half` is a name as any other.
        pattern = pattern.replace("__half", "_*half") if "cuda_fp16.h" in code else pattern
        found = re.search(pattern, code)
        if found is not None:
            return found, what, instead
    return None


def with_structs_inlined(text: str) -> str:
    """Device code whose functions are inlined if they return a struct and do not call themselves.
    GCC does not instrument a call whose result goes to memory, as in `tile[i] = f(x)`."""
    hidden, parts, end = masked(text), [], 0
    for found in _RETURNS.finditer(hidden):
        name = re.escape(found["name"])
        own = hidden[found.end("name") : after(hidden, found.end("name"), "{", "}")]
        if not _SCALAR.fullmatch(found["type"]) and not re.search(rf"\b{name}\s*[(<]", own):
            parts += [text[end : found.start()], "__attribute__((always_inline))"]
            end = found.end()
    return "".join([*parts, text[end:]])


def for_cpu(device: str, file: str) -> str:
    """Device code for the CPU device's compiler.

    Raises UnsupportedCodeError.
    """
    lacks = lacking(active(masked(device), macros_of(device)))
    if lacks is not None:
        found, what, instead = lacks
        place = f"{file_of(device, found.start(), file)}:{line_of(device, found.start())}"
        raise UnsupportedCodeError(
            f"{place}: error: {found[0].strip()}: the CPU device, which checks the kernel, "
            f"lacks {what}: {instead}"
        )
    without = _INCLUDE.sub(lambda each: each[0] if each[2] in PACKAGE_HEADERS else "", device)
    without = _STATIC_SHARED.sub("__shared__ ", without)
    without = _ALIGNED_SHARED.sub(r"\2 \1", without)
    without = with_structs_inlined(with_names(without, masked(without)))
    hidden = masked(without)
    parts = []
    end = 0
    for found in _DYNAMIC.finditer(hidden):
        kind, name = " ".join(found[2].split()), found[4]
        lines = found[0].count("\n")
        depth = hidden.count("{", 0, found.start()) - hidden.count("}", 0, found.start())
        parts.append(without[end : found.start()])
        if depth > 0:
            parts.append(
                f'{kind} *const {name} = plain_dynamic_shared<{kind}>("{name}");' + "\n" * lines
            )
        else:
            line = line_of(without, found.start())
            parts.append(
                f'\n#define {name} plain_dynamic_shared<{kind}>("{name}")\n'
                f'#line {line + lines} "{file_of(without, found.start(), file)}"\n'
            )
        end = found.end()
    parts.append(without[end:])
    return "".join(parts)


def with_constants(text: str, values: Mapping[str, int]) -> tuple[str, set[str]]:
    """The text with other values of its #define and const integers, and the names that it set."""
    known = set()
    for name, value in values.items():
        text, macros = re.subn(
            rf"^([ \t]*#[ \t]*define[ \t]+{re.escape(name)})(?![\w(])[^\n]*",
            rf"\g<1> {value}",
            text,
            flags=re.MULTILINE,
        )
        text, constants = re.subn(
            rf"(\b(?:constexpr|const)\b[^;(){{}}]*?\b{re.escape(name)}\s*=\s*)[^,;]+",
            rf"\g<1>{value}",
            text,
        )
        if macros or constants:
            known.add(name)
    return text, known
