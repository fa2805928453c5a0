"""What holds of an order to form a generation, on the state it is made on, and of what its
members hold when they reduce.

Each predicate is an invariant of its name; its docstring is the sentence for people.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from unicron.controlplane.core.fold_task import answer_of, awaited, everybody
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.core.verdict import Verdict
from unicron.events import TaskSpec, TransitionOrdered, node_of

# --- Who ----------------------------------------------------------------------------------------


def orders_wait_for_all_answers(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """After a break nobody is ordered on before everybody who lives has answered, and whoever
    failed has been told to go."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered) or body.planned:
        return
    task = at.tasks[body.task]
    if task.phase == "closed" and (missing := awaited(at, task)):
        yield f"generation {body.generation} of task {body.task} is ordered without {missing}"
    for name, _ in sorted(everybody(task)):
        worker = at.workers.get(name)
        if worker is not None and worker.task == body.task and worker.status == "failed":
            yield f"{name} failed and may still be there at generation {body.generation}"


def ordered_members_are_present(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """Whoever is ordered into a generation is prepared or a member, of that task, in its present
    life, on its own node."""
    if not isinstance(verdict.body, TransitionOrdered):
        return
    for member in verdict.body.members:
        worker = at.workers.get(member.worker)
        if worker is None or worker.incarnation != member.incarnation:
            yield f"{member.worker} is ordered in life {member.incarnation}, it is in another"
        elif worker.status not in ("prepared", "member") or worker.task != verdict.body.task:
            yield f"{member.worker} is ordered and {worker.status} for {worker.task}"
        elif not worker.node == member.node == node_of(member.worker):
            yield f"{member.worker} is ordered on {member.node}, it is on {worker.node}"


def members_run_one_software(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """All members of a generation run the same software, or its results would not be
    reproducible."""
    if not isinstance(verdict.body, TransitionOrdered):
        return
    people = [(m.worker, at.workers.get(m.worker)) for m in verdict.body.members]
    found = {name: worker.spec_digest for name, worker in people if worker is not None}
    if len({*found.values()}) > 1:
        yield f"generation {verdict.body.generation} of task {verdict.body.task} runs {found}"


def ordered_ranks_count_from_zero(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """An order names ranks 0, 1, 2 and so on, each worker once, as many as its sizes say."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered):
        return
    size = len(body.members)
    right = [m.rank for m in body.members] == [*range(size)]
    right = right and len({m.worker for m in body.members}) == size > 0
    if not right or body.tensor_parallel * body.pipeline_parallel * body.data_parallel != size:
        who = [(m.worker, m.rank) for m in body.members]
        yield f"generation {body.generation} of task {body.task} is ordered with {who}"


def stores_are_on_a_members_node(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """An order names the rendezvous store of a node that is present and carries a member with the
    training state."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered):
        return
    hosts = {node_of(m.worker) for m in body.members if m.state_from in (None, -1)}
    found = [at.nodes[name] for name in sorted(hosts) if name in at.nodes]
    here = (body.store_address, body.store_port)
    if not any((n.address, n.store_port) == here and n.status != "lost" for n in found):
        yield f"the store {body.store_address}:{body.store_port} is on none of {sorted(hosts)}"


# --- With what ----------------------------------------------------------------------------------


def orders_hand_out_every_sample_once(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """An order after a break hands out every micro-batch of the iteration exactly once, as kept or
    as owed; a planned one leaves that to the rule."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered):
        return
    handed = [m for member in body.members for m in (*member.keeps, *member.owes)]
    spec = at.tasks[body.task].spec
    if body.planned:
        wanted: list[int] = []
    elif body.iteration < spec.iterations:
        wanted = [*range(spec.micro_batches)]
    else:
        return  # the last iteration is committed: nothing is computed any more
    if sorted(handed) != wanted:
        yield (
            f"generation {body.generation} of task {body.task} hands out {sorted(handed)} "
            f"of {spec.micro_batches} micro-batches"
        )


def members_keep_only_what_they_hold(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """A member keeps only micro-batches that it said it holds, of the iteration that is ordered."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered):
        return
    task = at.tasks[body.task]
    for member in body.members:
        if not member.keeps:
            continue
        worker = at.workers.get(member.worker)
        answer = answer_of(task, worker) if worker is not None else None
        if answer is None or answer.iteration != body.iteration:
            yield f"{member.worker} is to keep {member.keeps} and doesn't stand at {body.iteration}"
        elif not {*member.keeps} <= {*answer.kept}:
            yield f"{member.worker} is to keep {member.keeps} and holds {answer.kept}"


def ordered_members_reach_one_iteration(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """After a break all members go on with one committed iteration: each stands there, steps to it
    with a reduced gradient that it holds, or gets its state from one who does."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered) or body.planned:
        return
    task = at.tasks[body.task]
    for member in body.members:
        worker = at.workers.get(member.worker)
        answer = answer_of(task, worker) if worker is not None else None
        reached = (-1, False) if answer is None else (answer.iteration, answer.reduced)
        if member.step_forward:
            if reached != (body.iteration - 1, True) or member.state_from is not None:
                yield f"{member.worker} is to step to {body.iteration} and stands at {reached}"
        elif member.state_from is None and reached[0] != body.iteration:
            yield f"{member.worker} is to go on with {body.iteration} and stands at {reached}"


def donors_have_state(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """Whoever gets its state from another rank gets it from a member that has it; members start
    from the initial state all together, at iteration 0, or not at all."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered):
        return
    donors = {m.rank for m in body.members if m.state_from is None}
    for member in body.members:
        if member.state_from is not None and member.state_from not in {-1, *donors}:
            yield f"{member.worker} gets its state from rank {member.state_from}, who has none"
        worker = at.workers.get(member.worker)
        if member.state_from is None and worker is not None and not worker.joined:
            yield f"{member.worker} is to go on with a state that it never had"
    anew = [m.worker for m in body.members if m.state_from == -1]
    if anew and (len(anew) < len(body.members) or body.iteration != 0):
        yield f"{anew} start from the initial state at iteration {body.iteration}, others don't"


def no_committed_iteration_is_given_up(at: ClusterState, verdict: Verdict) -> Iterator[str]:
    """An order never goes back behind an iteration that a living worker of the task has
    committed."""
    body = verdict.body
    if not isinstance(body, TransitionOrdered) or body.planned:
        return
    task = at.tasks[body.task]
    for worker in at.workers.values():
        if worker.task != body.task or worker.status not in ("prepared", "member"):
            continue
        answer = answer_of(task, worker)
        if answer is not None and answer.iteration > body.iteration:
            yield f"{worker.worker} stands at {answer.iteration}, ordered is {body.iteration}"


# --- What members hold when they reduce ---------------------------------------------------------

#: (iteration, micro-batch ids) of each member that takes part in a reduction.
Parts = Sequence[tuple[int, frozenset[int]]]


def members_reduce_one_iteration(spec: TaskSpec, parts: Parts) -> Iterator[str]:
    """All members that reduce together stand at the same committed iteration, one of the task's."""
    iterations = sorted({iteration for iteration, _ in parts})
    if len(iterations) != 1 or not 0 <= iterations[0] < spec.iterations:
        yield f"members of task {spec.task} reduce at {iterations} of {spec.iterations}"


def samples_are_reduced_once(spec: TaskSpec, parts: Parts) -> Iterator[str]:
    """Every micro-batch of an iteration goes into its gradient exactly once, whoever computed
    it."""
    held = Counter(sample for _, samples in parts for sample in samples)
    missing = [m for m in range(spec.micro_batches) if m not in held]
    more = sorted(m for m, times in held.items() if times > 1 or not 0 <= m < spec.micro_batches)
    if missing or more:
        yield f"task {spec.task} reduces without {missing}, and wrongly {more}"


ORDER_CHECKS: Final = (
    orders_wait_for_all_answers,
    ordered_members_are_present,
    members_run_one_software,
    ordered_ranks_count_from_zero,
    stores_are_on_a_members_node,
    orders_hand_out_every_sample_once,
    members_keep_only_what_they_hold,
    ordered_members_reach_one_iteration,
    donors_have_state,
    no_committed_iteration_is_given_up,
)
REDUCTION_CHECKS: Final = (members_reduce_one_iteration, samples_are_reduced_once)
