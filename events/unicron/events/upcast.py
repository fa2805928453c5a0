"""Old versions of event types, brought up to date by one pure function each.

An event type never changes its meaning: it gets a new tag (``node.lost.v2``), and the retired tag
(``node.lost.v1``) gets an entry here. The function maps the old body, a plain JSON object, to the
body of the next version; it must set ``type`` and may use nothing but its argument, because
history is folded again years later. What it doesn't know it hands on, so that a strict reader
still sees foreign fields. Its docstring says in docs/events.md what became of the tag.
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

    def about(self, tag: str) -> str:
        """What became of a retired tag, on one line."""
        return " ".join((self._by_tag[tag].__doc__ or "").split())

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


#: The retired tags of this version.
CURRENT = Upcasters()


@CURRENT.retires("plan.solved.v1")
def _plan_solved_v1(body: RawBody) -> RawBody:
    """`plan.solved.v2` has `took_ms` as a field. Before, it stood among the solver's own
    `statistics`, and an answer with an error had none."""
    statistics = body.get("statistics", [])
    took = [number for name, number in statistics if name == "took_ms"]
    return {
        **body,
        "type": "plan.solved.v2",
        "statistics": [pair for pair in statistics if pair[0] != "took_ms"],
        "took_ms": took[-1] if took else None,
    }
