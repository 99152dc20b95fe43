"""Makes the CPU device refuse a block that has more threads than a kernel's __launch_bounds__."""

import re

from . import plain_text
from .expressions import split_at_commas

_BOUNDS = re.compile(r"\b__launch_bounds__\s*\(")


def with_bounds(text: str) -> str:
    """The text with a check at the beginning of each kernel that has __launch_bounds__.

    The compiler computes the bound, since it may depend on the arguments of a template. The lines
    stay the same.
    """
    macros = {
        name: means
        for name, means in plain_text.macros_of(text).items()
        if re.search(r"__(?:global|launch_bounds)__", means)
    }
    parts, end = [], 0
    for each in plain_text.declarations(plain_text.code_of(text)):
        head = re.sub(r"\w+", lambda word: macros.get(word[0], word[0]), each.head)
        bounds = _BOUNDS.search(head)
        if not each.is_function or bounds is None or "__global__" not in head:
            continue
        closes = plain_text.after(head, bounds.end() - 1, "(", ")") - 1
        most = " ".join(split_at_commas(head[bounds.end() : closes])[0].split())
        begin = each.begin + len(each.head) + 1
        written = _BOUNDS.search(each.head)
        place = written.start() if written else len(each.head.rstrip())
        line = plain_text.line_of(text, each.begin + place)
        parts += [text[end:begin], f" ::grid_check_bounds(static_cast<int>({most}), {line});"]
        end = begin
    return "".join([*parts, text[end:]])
