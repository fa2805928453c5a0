"""Who hands the training state to whom, by the planner's rule: the nearest holder, and every holder
as often as the others, so that no single one feeds all that join."""

from collections.abc import Sequence

from unicron.controlplane.core.state import ClusterState, WorkerState
from unicron.planner.problem import NodeSupply, Slot
from unicron.planner.sources import nearest


def donors(
    state: ClusterState, people: Sequence[WorkerState], standing: Sequence[bool]
) -> list[int | None]:
    """`people` by rank, of whom those who are `standing` have the state, one at least: the rank
    that sends it to each, None to who has it."""
    slots = [Slot(node=worker.node, device=worker.device) for worker in people]
    ranks = {slot: rank for rank, slot in enumerate(slots)}
    nodes: dict[str, NodeSupply] = {}
    for worker in people:
        if (node := state.nodes.get(worker.node)) is not None:
            nodes[node.node] = NodeSupply(
                node=node.node, kind=node.device_kind, devices=(), rack=node.rack
            )
    holders = [slot for slot, stands in zip(slots, standing, strict=True) if stands]
    takers = [slot for slot, stands in zip(slots, standing, strict=True) if not stands]
    chosen = nearest(nodes, takers, holders, holders)
    return [ranks[chosen[slot]] if slot in chosen else None for slot in slots]
