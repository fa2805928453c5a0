"""The shim's protocol as a pure state machine: orders in, what to do next out.

Rules it keeps: orders of a lower term, of a generation that was closed, or that was already
entered, have no effect; a close is obeyed at once and answered once; what the shim does next is
a function of the newest orders, never of the order in which they arrived.
"""

from typing import Final

import msgspec

from unicron.events.ids import Generation, Incarnation, TaskId, Term, WorkerId
from unicron.events.transition import GenerationClosed, OrderedMember, TransitionOrdered

#: What the training thread is to do next.
TRAIN: Final = "train"
ANSWER: Final = "answer"
JOIN: Final = "join"
WAIT: Final = "wait"


class Shim(msgspec.Struct, frozen=True, kw_only=True):
    """What one worker knows of its task's orders.

    `standing`: the generation it stands in, 0 for none. `broken`: that generation broke here and
    was left. `closed`: highest generation closed; `answered`: highest close answered. `order`:
    the newest transition that wants it and isn't carried out yet. `excluded`: the newest
    generation that leaves it out. `refused`: orders that had no effect.
    """

    task: TaskId
    worker: WorkerId
    incarnation: Incarnation
    term: Term = Term(0)
    standing: Generation = Generation(0)
    broken: bool = False
    closed: Generation = Generation(0)
    answered: Generation = Generation(0)
    order: TransitionOrdered | None = None
    excluded: Generation = Generation(0)
    refused: int = 0

    @property
    def newest(self) -> Generation:
        """The newest planned generation it knows of: what it puts into the vote."""
        ordered = self.order.generation if self.order is not None else 0
        return Generation(max(ordered, self.excluded, self.standing))


_replace = msgspec.structs.replace


def on_order(shim: Shim, term: Term, body: object) -> tuple[Shim, Generation | None]:
    """The shim after an order, and the generation whose connections must be shut at once, if
    any. Anything that isn't an order to this task is ignored."""
    if not isinstance(body, GenerationClosed | TransitionOrdered) or body.task != shim.task:
        return shim, None
    if term < shim.term:
        return _replace(shim, refused=shim.refused + 1), None
    shim = _replace(shim, term=term)
    if isinstance(body, GenerationClosed):
        return _on_close(shim, body)
    return _on_transition(shim, body), None


def _on_close(shim: Shim, body: GenerationClosed) -> tuple[Shim, Generation | None]:
    if body.generation <= shim.closed:
        return shim, None  # said again
    if body.generation < shim.standing:
        return _replace(shim, refused=shim.refused + 1), None  # it was left long ago
    order = shim.order
    if order is not None and order.generation <= body.generation:
        order = None
    return _replace(shim, closed=body.generation, order=order), body.generation


def _on_transition(shim: Shim, body: TransitionOrdered) -> Shim:
    known = max(shim.closed, shim.standing, shim.excluded)
    if body.generation <= known or (shim.order and body.generation <= shim.order.generation):
        stale = body.generation <= shim.closed
        return _replace(shim, refused=shim.refused + (1 if stale else 0))
    if place(shim, body) is None:
        return _replace(shim, excluded=body.generation, order=None)
    return _replace(shim, order=body)


def place(shim: Shim, order: TransitionOrdered) -> OrderedMember | None:
    """This incarnation's place in the order, or None."""
    for member in order.members:
        if member.worker == shim.worker and member.incarnation == shim.incarnation:
            return member
    return None


def todo(shim: Shim) -> str:
    """What the training thread is to do now.

    An unanswered close comes first; then an order that can be carried out now: one after a fault
    (everybody has stopped), or a planned one if this worker stands in no generation. A planned
    one for a member is carried out at an iteration boundary: see `boundary`. If its generation
    broke before that, there won't be a boundary: it waits for the close.
    """
    if shim.closed > shim.answered:
        return ANSWER
    if shim.order is not None and (not shim.order.planned or not shim.standing):
        return JOIN
    return TRAIN if trains(shim) else WAIT


def trains(shim: Shim) -> bool:
    """It stands in a generation that is neither closed nor broken."""
    return shim.standing > shim.closed and not shim.broken


def must_stop(shim: Shim) -> bool:
    """The generation it stands in was closed: stop at the next micro-batch."""
    return 0 < shim.standing <= shim.closed


def boundary(shim: Shim, voted: Generation) -> bool:
    """After the vote of an iteration: does everybody leave this generation now? `voted` is the
    newest order that any member knew."""
    return voted > shim.standing


def answered(shim: Shim) -> Shim:
    """The newest close was answered: the worker stands in no generation."""
    return _replace(shim, answered=shim.closed, standing=Generation(0), broken=False)


def entering(shim: Shim) -> Shim:
    """The order is being carried out: a break from here on is one of its generation."""
    assert shim.order is not None
    return _replace(shim, standing=shim.order.generation, broken=False, order=None)


def broke(shim: Shim) -> Shim:
    """A collective of the generation failed here."""
    return _replace(shim, broken=True)


def left(shim: Shim) -> Shim:
    """A planned transition left this worker out: it stands in no generation."""
    return _replace(shim, standing=Generation(0), broken=False)
