"""Transitions of a task from one generation to the next."""

from unicron.events.base import Decision, Part
from unicron.events.ids import Generation, Incarnation, NodeId, TaskId, WorkerId


class GenerationClosed(Decision, frozen=True, kw_only=True, tag="generation.closed.v1"):
    """Members leave all collectives up to `generation` at once, keep what they have and answer
    with MemberQuiesced. `generation` is the highest the log has assigned to the task."""

    task: TaskId
    generation: Generation
    reason: str


class OrderedMember(Part, frozen=True, kw_only=True):
    """One member of an ordered generation.

    `keeps`: micro-batches of the iteration to go on with whose gradients it holds already;
    `owes`: those it has to compute. `step_forward`: it holds the reduced gradient of the
    iteration before and steps with it first. `state_from`: rank of the donor of parameters and
    optimizer state; None: it has them. -1: it starts from the initial state (seed).
    """

    worker: WorkerId
    incarnation: Incarnation
    node: NodeId
    rank: int
    keeps: tuple[int, ...]
    owes: tuple[int, ...]
    step_forward: bool = False
    state_from: int | None = None


class TransitionOrdered(Decision, frozen=True, kw_only=True, tag="transition.ordered.v1"):
    """The whole instruction for the next generation.

    `planned`: members train on in the old generation and switch at the iteration boundary where
    the vote's newest order reaches this generation; then `iteration` is -1 (wherever they
    stand), keeps and owes are empty and follow from the assignment rule. Otherwise the members
    have stopped and go on with `iteration` (counted from 0). `members` is ordered by rank.
    """

    task: TaskId
    generation: Generation
    planned: bool
    iteration: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    store_address: str
    store_port: int
    members: tuple[OrderedMember, ...]
    reason: str


class TransitionCompleted(Decision, frozen=True, kw_only=True, tag="transition.completed.v1"):
    """All members stand in the generation, at the same committed iteration."""

    task: TaskId
    generation: Generation
    iteration: int
