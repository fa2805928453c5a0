"""Short ways to say what happened in a Story."""

from unicron import events as ev


def kinds(made) -> list[str]:
    return [type(body).__name__ for body in made]


def of(made, kind):
    """The only decision of that kind."""
    (body,) = [body for body in made if isinstance(body, kind)]
    return body


def task(story, name="gpt"):
    return story.state.tasks[name]


def members(story, name="gpt") -> list[str]:
    return [m.worker for m in sorted(task(story, name).members, key=lambda m: m.rank)]


def incidents(story) -> list[tuple[int, str]]:
    """Severity and what the task was left with, in the order of their opening."""
    found = sorted(story.state.incidents.values(), key=lambda i: i.opened)
    return [(i.severity, i.outcome) for i in found]


def is_open(story) -> bool:
    return any(not i.resolved for i in story.state.incidents.values())


def samples(order: ev.TransitionOrdered) -> list[int]:
    """All micro-batches that the order's members keep or owe."""
    return sorted(m for member in order.members for m in (*member.keeps, *member.owes))


def hold(story, what: str, *names: str) -> None:
    story.held += [(what, name) for name in names]


def release(story, what: str, *names: str) -> None:
    for name in names:
        story.held.remove((what, name))


def limit(story, key: str) -> None:
    """The wait reaches its limit; it must be one that the state has."""
    from unicron.controlplane.core.deadlines import deadlines

    (found,) = [k for k in deadlines(story.state) if k.startswith(key)]
    story.decide_input(ev.DeadlinePassed(key=found, limit_ms=1))
