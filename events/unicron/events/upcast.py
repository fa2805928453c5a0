"""Old versions of event types, brought up to date by one pure function each.

An event type never changes its meaning: it gets a new tag (``node.lost.v2``), and the retired tag
(``node.lost.v1``) gets an entry here. The function maps the old body, a plain JSON object, to the
body of the next version; it must set ``type`` and may use nothing but its argument, because
history is folded again years later.

    @CURRENT.retires("node.lost.v1")
    def _node_lost_v1(body: RawBody) -> RawBody:
        return {**body, "type": "node.lost.v2", "rack": ""}
"""

from collections.abc import Callable
from typing import Any, TypeAlias

RawBody: TypeAlias = dict[str, Any]
Upcaster: TypeAlias = Callable[[RawBody], RawBody]


class Upcasters:
    """The retired tags and what becomes of them. Chains: v1 to v2, v2 to v3."""

    def __init__(self) -> None:
        self._by_tag: dict[str, Upcaster] = {}

    @property
    def tags(self) -> tuple[str, ...]:
        """All retired tags, sorted."""
        return tuple(sorted(self._by_tag))

    def retires(self, tag: str) -> Callable[[Upcaster], Upcaster]:
        """Decorator: the function replaces bodies with this tag. ValueError if there is one."""
        if tag in self._by_tag:
            raise ValueError(f"{tag} is retired already")

        def register(function: Upcaster) -> Upcaster:
            self._by_tag[tag] = function
            return function

        return register

    def apply(self, body: RawBody) -> RawBody | None:
        """The body in its newest version, or None if its tag was never retired.

        ValueError if a function forgot to move on to another tag.
        """
        seen: set[str] = set()
        tag = str(body.get("type"))
        if tag not in self._by_tag:
            return None
        while (upcaster := self._by_tag.get(tag)) is not None:
            seen.add(tag)
            body = upcaster(dict(body))
            tag = str(body.get("type"))
            if tag in seen:
                raise ValueError(f"the upcasters of {tag} run in a circle")
        return body


#: The retired tags of this version: none so far.
CURRENT = Upcasters()
