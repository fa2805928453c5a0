"""An incident in a few sentences: what, whom it hit for how long, what it cost, how it ended."""

from collections.abc import Sequence as SequenceOf

from unicron.controlplane.replay.phrases import one_line
from unicron.controlplane.replay.story import PlanChoice, TaskMoment, TaskPassage
from unicron.controlplane.replay.summary import (
    LOG_END,
    TASK_ENDED,
    IncidentSummary,
    counted_longest,
)
from unicron.controlplane.replay.units import count, device_time, duration, flop


def headline_of(
    incident: IncidentSummary, tasks: SequenceOf[TaskPassage], plans: SequenceOf[PlanChoice]
) -> tuple[str, ...]:
    """Sentences, each on one line."""
    sentences = [f"{_capital(incident.what)}."]
    sentences += [_passage(incident, passage) for passage in tasks if passage.hit]
    sentences += [_made_smaller(passage, plans) for passage in tasks if not passage.hit]
    if incident.costs and incident.lost_device_ms:
        sentences.append(f"It cost {cost_words(incident)}.")
    elif incident.costs:
        sentences.append("It cost no training.")
    sentences.append("It is still open." if incident.is_open else f"Outcome: {incident.outcome}.")
    return tuple(map(one_line, sentences))


def cost_words(incident: IncidentSummary) -> str:
    """``32.6 GFLOP (1.74 device-seconds), until it had what it had before``."""
    longest = counted_longest(incident.costs)
    several = sum(bool(c.lost_device_ms) for c in incident.costs) > 1
    who = f"{longest.task} " if longest is not None and several else ""
    until = {
        LOG_END: f"counted to the end of the log, {who}still short of what it had",
        TASK_ENDED: f"until {who or 'the task '}ended",
    }.get(incident.cost_until, f"until {who or 'it '}had what it had before")
    return f"{flop(incident.lost_flop)} ({device_time(incident.lost_device_ms)}), {until}"


def _passage(incident: IncidentSummary, passage: TaskPassage) -> str:
    """The task that was hit itself."""
    before, during, after = passage.before, passage.during, passage.after
    if not before.devices:
        return f"{passage.task} was not training before it."
    if not incident.stall_ms:
        return f"{passage.task} trained on, on {count(before.devices, 'device')}."
    stall = f"{passage.task} stood still for {duration(incident.stall_ms)}"
    if not during.devices:
        return f"{stall} and did not train again."
    if during.devices == before.devices:
        return f"{stall} and went on with the same {count(before.devices, 'device')}."
    went = f"{stall} and went on with {during.devices} of {count(before.devices, 'device')}"
    if after is not None and after.devices >= before.devices:
        return f"{went}; it had all {before.devices} again after {_since(incident, after)}."
    if passage.whole is not None:
        later = f"after {_since(incident, passage.whole)} (#{passage.whole.seq})"
        return f"{went}; it had all {before.devices} again {later}."
    return f"{went}."


def _since(incident: IncidentSummary, moment: TaskMoment) -> str:
    return duration((moment.at_ns - incident.began_at_ns) // 1_000_000)


def _made_smaller(passage: TaskPassage, plans: SequenceOf[PlanChoice]) -> str:
    """A task that a plan made smaller for the others' sake; of several plans the last."""
    found = [
        f" by plan #{plan.seq}: {before.devices} -> {count(after.devices, 'device')}"
        for plan in plans
        if plan.taken and not plan.void
        for before, after in zip(plan.before, plan.after, strict=True)
        if after.task == passage.task and after.devices < before.devices
    ]
    return f"{passage.task} was made smaller{found[-1] if found else ''}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
