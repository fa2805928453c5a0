"""What a page is made of: elements with attributes and children, and the one place that escapes.

All text of a log passes here: an element's text and attributes are escaped when it is written, and
the script that draws packed elements sets them as text, so none of it is ever read as markup.
"""

from collections.abc import Iterable
from functools import cache
from html import escape
from typing import Final

import msgspec

#: Elements that have no end tag.
_VOID: Final = frozenset({"br"})
#: The only attributes there are: none runs anything, none but `href` names anything to go to.
ATTRIBUTES: Final = frozenset(
    {"aria-label", "class", "cx", "cy", "data-name", "height", "href", "id", "open", "r", "role"}
    | {"scope", "style", "tabindex", "width", "x", "y"}
)


class Element(msgspec.Struct, frozen=True):
    """`is_part`: there may be many that differ in their texts only; they are packed as such."""

    tag: str
    attributes: tuple[tuple[str, str], ...] = ()
    children: tuple["Element | str", ...] = ()
    is_part: bool = False


def el(
    tag: str, *children: "Element | str | None", part: bool = False, **attributes: str | None
) -> Element:
    """An element; children and attributes that are None are left out. A name that Python keeps for
    itself takes a trailing underscore; others stand for hyphens."""
    pairs = []
    for key, value in attributes.items():
        if value is None:
            continue
        name = _name(key)
        assert name != "href" or value.startswith("#"), "a page links into itself only"
        pairs.append((name, printable(value)))
    texts = (printable(c) if isinstance(c, str) else c for c in children if c is not None)
    return Element(tag, tuple(pairs), tuple(texts), part)


@cache
def _name(key: str) -> str:
    name = key.rstrip("_").replace("_", "-")
    assert name in ATTRIBUTES, name
    return name


def each(tag: str, rows: Iterable["Element"], **attributes: str | None) -> Element:
    """An element with these children, of which there may be many."""
    return el(tag, *rows, part=True, **attributes)


def printable(text: str) -> str:
    """The text with a mark for each character that isn't printable, such as those that turn the
    direction of writing."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def html(element: Element) -> str:
    """The element as HTML."""
    parts: list[str] = []
    _write(element, parts)
    return "".join(parts)


def _write(element: Element, parts: list[str]) -> None:
    attributes = "".join(f' {name}="{escape(value)}"' for name, value in element.attributes)
    parts.append(f"<{element.tag}{attributes}>")
    for child in element.children:
        if isinstance(child, Element):
            _write(child, parts)
        else:
            parts.append(escape(child, quote=False))
    if element.tag not in _VOID:
        parts.append(f"</{element.tag}>")
