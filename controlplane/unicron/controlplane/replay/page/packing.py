"""Many stories in little room: the shapes that their elements have in common, the texts that they
repeat, and for each element its shape and what it has of its own. page.js draws them again.

A shape is ``[tag, [[attribute, text or null], ...], [child, ...]]`` where a child is a shape, or
how many children of its own follow there. An element is ``[shape, own, ...]`` with all that is its
own in order: a number stands for a text of the dictionary, a list for an element, a string for
itself. What a mark of the timeline says stands in the event that it leads to; that isn't packed.
"""

import base64
import zlib
from collections import Counter
from typing import Any, Final

import msgspec

from unicron.controlplane.replay.page.tree import Element

#: Attributes that are the same wherever the shape is.
_SHAPED: Final = frozenset({"class", "data-name", "tabindex", "scope", "role"})
#: Shorter texts are not worth a number.
_SHORT: Final = 4


class Packer:
    """Packs elements one by one, so that each may be forgotten once it was added."""

    def __init__(self) -> None:
        self._texts: Counter[str] = Counter()
        self._shapes: dict[bytes, int] = {}
        self._items: list[list[Any]] = []

    def add(self, element: Element) -> None:
        """One more."""
        self._items.append(self._element(element))

    def packed(self, kept: int) -> str:
        """The first so many elements as base64 of deflated JSON; the same elements give the same
        text."""
        return base64.b64encode(zlib.compress(msgspec.json.encode(self.plain(kept)), 9)).decode()

    def plain(self, kept: int) -> dict[str, Any]:
        """What is packed: the dictionary's texts, the shapes, the elements."""
        texts = [t for t, n in self._texts.most_common() if n > 1 and len(t) >= _SHORT]
        numbers = {text: number for number, text in enumerate(texts)}
        return {
            "texts": texts,
            "shapes": list(map(msgspec.json.decode, self._shapes)),
            "elements": [_numbered(item, numbers) for item in self._items[:kept]],
        }

    def _element(self, element: Element) -> list[Any]:
        own: list[Any] = []
        shape = msgspec.json.encode(self._shape(element, own))
        return [self._shapes.setdefault(shape, len(self._shapes)), *own]

    def _shape(self, element: Element, own: list[Any]) -> list[Any]:
        attributes: list[list[str | None]] = []
        for name, value in element.attributes:
            if name in _SHAPED:
                attributes.append([name, value])
            else:
                attributes.append([name, None])
                own.append(self._text(value))
        children: list[Any] = []
        for child in () if element.tag == "circle" else element.children:
            if isinstance(child, Element) and not child.is_part:
                children.append(self._shape(child, own))
                continue
            own.append(self._element(child) if isinstance(child, Element) else self._text(child))
            if children and isinstance(children[-1], int):
                children[-1] += 1
            else:
                children.append(1)
        return [element.tag, attributes, children]

    def _text(self, text: str) -> str:
        self._texts[text] += 1
        return text


def _numbered(item: list[Any], numbers: dict[str, int]) -> list[Any]:
    return [
        _numbered(value, numbers)
        if isinstance(value, list)
        else numbers.get(value, value)
        if isinstance(value, str)
        else value
        for value in item
    ]
