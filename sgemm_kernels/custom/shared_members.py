"""Names the arrays of a struct in dynamic shared memory, so that traces and findings have them."""

import re

_DECLARED = re.compile(r"\bextern\s+__shared__\b[^;]*?\b(\w+)\s*\[\s*\]\s*;")
_VIEW = re.compile(
    r"[&*]\s*(?:const\s+)?(\w+)\s*=\s*(\*?)\s*"
    r"(?:\(\s*(\w+)\s*\*\s*\)\s*|reinterpret_cast<\s*(\w+)\s*\*\s*>\s*\(\s*)(\w+)\s*\)?\s*;"
)
"""`Tiles &tiles = *(Tiles *)memory;` or `Tiles *tiles = reinterpret_cast<Tiles *>(memory);`"""
_ARRAY = re.compile(r"(\w+)\s*(?:\[[^\[\];]*\]\s*)+(?=[,;={])")


def with_names(text: str, code: str) -> str:
    """The text with a statement after each view of dynamic shared memory as a struct. `code` is the
    same text without comments. A struct with member functions has no names."""
    declared = set(_DECLARED.findall(code))
    parts = []
    end = 0
    for view in _VIEW.finditer(code):
        name, star, kind, memory = view[1], view[2], view[3] or view[4], view[5]
        body = re.search(rf"\bstruct\s+{kind}\s*\{{([^{{}}]*)\}}", code)
        if memory in declared and body:
            member = f"{name}{'.' if star else '->'}"
            calls = [
                f' plain_name_array("{array}", {member}{array});'
                for array in _ARRAY.findall(body[1])
            ]
            parts += [text[end : view.end()], *calls]
            end = view.end()
    return "".join([*parts, text[end:]])
