"""Shortens Matplotlib's SVG and lets one file serve light and dark pages."""

import itertools
import re
from collections.abc import Mapping
from xml.etree import ElementTree as Xml

_LAID_OUT = "'DejaVu Sans'"
"""The font by which Matplotlib computes the layout."""
_FAMILIES = f"{_LAID_OUT}, Verdana, sans-serif"
"""Verdana is as wide as DejaVu Sans. Most other fonts are narrower, so that text fits its place."""
_NAMES = {"xmlns": "http://www.w3.org/2000/svg", "xmlns:xlink": "http://www.w3.org/1999/xlink"}
_COORDINATES = ("d", "x", "y", "width", "height", "transform")
_NOT_INHERITED = {*_COORDINATES, "id", "xlink:href", "clip-path", "opacity"}
_COLUMNS = 100


def compact(svg: str, dark: Mapping[str, str], source: str | None = None) -> str:
    """The same picture in fewer lines and bytes.

    Parameters
    ----------
    svg
        Written by Matplotlib with the setting ``svg.fonttype`` "none": text stays text.
    dark
        The colours that a dark page replaces, and their replacements, as "#rrggbb".
    source
        What the picture shows, for its metadata.
    """
    root = Xml.fromstring(svg)
    for element in root.iter():
        _shorten(element)
    values = itertools.chain.from_iterable(element.attrib.values() for element in root.iter())
    used = set(re.findall(r"#([^)\n]+)", "\n".join(values)))
    for element in root.iter():
        if element.get("id") not in used:
            element.attrib.pop("id", None)
    _flatten(root)
    root.attrib = _NAMES | root.attrib | {"font-family": _FAMILIES, "stroke-linejoin": "round"}
    root[:0] = _head(root, dark, source)
    _break_lines(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{Xml.tostring(root, encoding="unicode")}\n'


def _shorten(element: Xml.Element) -> None:
    """Replaces CSS by attributes, rounds coordinates, and removes blanks and namespaces."""
    element.tag = _without_namespace(element.tag)
    for each in list(element):
        if _without_namespace(each.tag) in ("metadata", "style"):
            element.remove(each)
    if element.tag not in ("text", "tspan"):
        element.text = None
    element.tail = None
    found = {
        name.replace(f"{{{_NAMES['xmlns:xlink']}}}", "xlink:"): value
        for name, value in element.items()
    }
    for declaration in filter(None, found.pop("style", "").split(";")):
        name, _, value = (part.strip() for part in declaration.partition(":"))
        if name == "font":  # how older versions write it; no attribute has that name
            found["style"] = f"font: {value}".replace(_LAID_OUT, _FAMILIES)
        elif (name, value) != ("font-family", _LAID_OUT):
            found[name] = value.removesuffix("px")
    for name in found.keys() & set(_COORDINATES):
        found[name] = _rounded(found[name])
    if found.get("transform", "").startswith("rotate(0 "):
        del found["transform"]
    element.attrib = found


def _without_namespace(tag: str) -> str:
    return tag.rpartition("}")[2]


def _rounded(numbers: str) -> str:
    """Coordinates with two decimals, on one line."""

    def two_decimals(number: re.Match[str]) -> str:
        return f"{round(float(number[0]), 2) or 0:g}"

    short = re.sub(r"-?\d+(?:\.\d+)?", two_decimals, " ".join(numbers.split()))
    return re.sub(r" ?([A-Za-z]) ?", r"\1", short)


def _flatten(parent: Xml.Element) -> None:
    """Removes groups without attributes. Several markers of a group share their look."""
    children: list[Xml.Element] = []
    for child in parent:
        _flatten(child)
        if len(child) > 1 and {each.tag for each in child} == {"use"}:
            _share(child)
        plain_group = child.tag == "g" and not child.attrib
        children += child if plain_group else [child] if len(child) or child.tag != "defs" else []
    parent[:] = children


def _share(group: Xml.Element) -> None:
    """Moves the attributes that all children have into the group."""
    for name, value in list(group[0].items()):
        if name not in _NOT_INHERITED and all(each.get(name) == value for each in group):
            group.set(name, value)
            for each in group:
                del each.attrib[name]


def _head(root: Xml.Element, dark: Mapping[str, str], source: str | None) -> list[Xml.Element]:
    """The metadata, and the style that replaces colours on a dark page."""
    metadata, style = Xml.Element("metadata"), Xml.Element("style")
    metadata.text = source
    rules = [
        f'[{paint}="{light}"]{{{paint}:{replacement}}}'
        for paint in ("fill", "stroke")
        for light, replacement in dark.items()
        if any(element.get(paint) == light for element in root.iter())
    ]
    style.text = "\n".join(["", "@media (prefers-color-scheme: dark) {", *rules, "}", ""])
    return [metadata] * bool(source) + [style] * bool(rules)


def _break_lines(parent: Xml.Element) -> None:
    """Starts a line for each element. Markers that follow each other share a line."""
    if not len(parent) or parent.tag in ("text", "tspan"):
        return
    parent.text, column = "\n", 0
    for child, following in itertools.zip_longest(parent, parent[1:]):
        _break_lines(child)
        column += len(Xml.tostring(child))
        markers = following is not None and child.tag == following.tag == "use"
        if markers and column + len(Xml.tostring(following)) <= _COLUMNS:
            child.tail = ""
        else:
            child.tail, column = "\n", 0
