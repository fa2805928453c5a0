"""A run that follows a scenario, and what came of it."""

import difflib
from collections.abc import Callable
from functools import partial

import msgspec

from unicron.controlplane.core.decide import decide
from unicron.controlplane.replay import Replayer
from unicron.controlplane.testing import virtual
from unicron.controlplane.testing.about import is_about
from unicron.controlplane.testing.campaign import MISMATCH, NOT_LIVE, VIOLATED
from unicron.controlplane.testing.exact import FOR_GOOD_MS, KINDS
from unicron.controlplane.testing.expectations import Run
from unicron.controlplane.testing.hosts import Host
from unicron.controlplane.testing.moments import After, Happening
from unicron.controlplane.testing.options import Fault
from unicron.controlplane.testing.outcome import Outcome
from unicron.controlplane.testing.scenario import CUT, Scenario
from unicron.controlplane.testing.simulation import Simulation
from unicron.controlplane.testing.trainee import Trainee
from unicron.controlplane.testing.training import Training
from unicron.events import Recorded, TaskId, WorkerPrepared

_SOLVE_MS = 200
_DIFFERENCE_LINES_MAX = 40


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an `expect` line. `found`: what was found instead, "" if it is so."""

    line: int
    text: str
    found: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a scenario. `undone`: what was to happen and found nothing to do it to.
    `divergence`: where a replay of the log differs, or "". `golden`: what belongs below the cut."""

    scenario: Scenario
    outcome: Outcome
    findings: tuple[Finding, ...]
    undone: tuple[Happening, ...]
    divergence: str
    golden: str

    @property
    def held(self) -> bool:
        """Everything but perhaps the trace is as it should be."""
        outcome = self.outcome
        wrong = outcome.violations or outcome.stuck or self.divergence or self.undone
        return not wrong and not any(f.found for f in self.findings)

    @property
    def code(self) -> int:
        """Exit code: 0 if all is as it should be, the trace too if the file has one."""
        if self.outcome.violations:
            return VIOLATED
        if self.divergence:
            return MISMATCH
        if self.outcome.stuck:
            return NOT_LIVE
        return int(not self.held or not (self.same_trace or not self.scenario.golden))

    @property
    def same_trace(self) -> bool:
        return self.golden == self.scenario.golden

    @property
    def text(self) -> str:
        """The file with the trace of this run."""
        return f"{self.scenario.script}\n{CUT}\n{self.golden}"

    def wrong(self) -> list[str]:
        """What isn't as it should be but the trace, a sentence each."""
        return [*self.failures(), *self.unmet()]

    def failures(self) -> list[str]:
        """What no run of any scenario may show."""
        said = [f"invariant {v.invariant} at #{v.seq}: {v.what}" for v in self.outcome.violations]
        if self.outcome.stuck:
            said.append(f"stuck at {self.outcome.seconds:.1f} s: {self.outcome.stuck}")
        if self.divergence:
            said.append(f"a replay of the log differs at {self.divergence}")
        said += [
            f"{self.scenario.path}:{h.line}: there was nothing to do it to: {h.text}"
            for h in self.undone
        ]
        return said

    def unmet(self) -> list[str]:
        """Expectations that weren't met."""
        path = self.scenario.path
        return [f"{path}:{f.line}: expected {f.text}: {f.found}" for f in self.findings if f.found]

    def difference(self) -> list[str]:
        """Where the trace differs from that in the file, for people; empty if it doesn't."""
        if self.same_trace:
            return []
        old, new = self.scenario.golden.splitlines(), self.golden.splitlines()
        if not old:
            return ["the file has no trace yet"]
        pairs = zip([*old, ""], [*new, ""], strict=False)
        at = next((n for n, (a, b) in enumerate(pairs) if a != b), 0)
        below = self.scenario.script.count("\n") + 3
        if old[:-1] == new[:-1]:
            head = "only the digest differs: the same events at the same times, with other content"
        else:
            head = f"first difference in line {below + at} of {self.scenario.path}"
        lines = list(difflib.unified_diff(old, new, "in the file", "in this run", lineterm="", n=2))
        left = len(lines) - _DIFFERENCE_LINES_MAX
        more = [f"... and {left} more lines"] if left > 0 else []
        return [head, *lines[:_DIFFERENCE_LINES_MAX], *more]


class Scripted(Simulation):
    """Nothing happens by chance or by itself: no fault, no repair and no task that isn't named."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario.options)
        self._scenario = scenario
        self._rows: list[tuple[str, str]] = [("", self.lines[0])]
        self._at_s: list[float] = []
        self._done: list[tuple[float, int]] = []
        self._did: set[int] = set()
        self._heard: dict[int, int] = {}
        self._void: list[int] = []
        self._repeated: list[int] = []
        #: What the code of a task does to each of its workers.
        self.spoilt: dict[TaskId, Callable[[Trainee], None]] = {}
        #: How long the control plane is away once it was killed.
        self.away_ms = 500

    async def run(self) -> Outcome:
        self._begin()
        for happening in self._scenario.happenings:
            if happening.after is None:
                self.later(happening.fault.at_ms, partial(self._fault, happening.fault))
        limit_s = self._scenario.limit_ms / 1000
        if self._scenario.to_the_end:
            return await self._finish(limit_s)
        await self._until(lambda: False, limit_s)
        return self._outcome("")

    def report(self, outcome: Outcome) -> Report:
        """Judge it."""
        run = Run(
            outcome=outcome,
            at_s=tuple(self._at_s),
            faults=tuple(self._done),
            void=tuple(self._void),
            repeated=tuple(self._repeated),
        )
        found = Replayer(outcome.log).verify().divergence
        scenario = self._scenario
        return Report(
            scenario=scenario,
            outcome=outcome,
            findings=tuple(
                Finding(line=e.line, text=e.text, found=e.judge(run) or "")
                for e in scenario.expectations
            ),
            undone=tuple(h for h in scenario.happenings if id(h.fault) not in self._did),
            divergence=f"#{found.seq}: {found.message} {found.why}".strip() if found else "",
            golden=self._golden(outcome),
        )

    def _golden(self, outcome: Outcome) -> str:
        only, without = self._scenario.only, self._scenario.without
        shown = [
            row
            for event, row in self._rows
            if not event or (event not in without and (not only or event in only))
        ]
        last = (
            f"digest {outcome.digest[:16]} over all {len(outcome.log)} events, "
            f"{outcome.seconds:.3f} s"
        )
        return "\n".join([*shown, last, ""])

    # --- What happens -------------------------------------------------------------------------

    def _ended(self) -> bool:
        """The base's, and nothing is to come at a time."""
        times = [h.fault.at_ms for h in self._scenario.happenings if h.after is None]
        return self._loop.time() > max(times, default=0) / 1000 and super()._ended()

    def _why_stuck(self) -> str:
        """For people: what hasn't ended, how the nodes stand, and who has to do what next."""
        state = self.state
        said = [f"{t.spec.task} is {t.phase}" for t in state.tasks.values()] or ["no task is known"]
        open_ = [i.incident for i in state.incidents.values() if not i.resolved]
        said.append(f"open incidents: {', '.join(open_)}" if open_ else "no incident is open")
        said += [f"{n.node} is {n.status}" for n in state.nodes.values()]
        if state.plan.request:
            said.append(f"the planner hasn't answered #{state.plan.request}")
        due = decide(state)
        left = f"{type(due.body).__name__} is due" if due is not None else "no decision is due"
        return "; ".join([*said, left])

    def _fault(self, fault: Fault) -> None:
        self.fired(fault, KINDS[fault.kind](self, fault))

    def fired(self, fault: Fault, what: str) -> None:
        if what and id(fault) not in self._did:
            self._did.add(id(fault))
            self._done.append((self._loop.time(), len(self.log)))
        super().fired(fault, what.replace(f"for {FOR_GOOD_MS} ms", "for good"))

    def _stored(self, recorded: Recorded) -> None:
        before = self.state
        super()._stored(recorded)
        self._at_s.append(self._loop.time())
        if self.state.void > before.void:
            self._void.append(recorded.seq)
        if self.state.duplicates > before.duplicates:
            self._repeated.append(recorded.seq)
        envelope = recorded.envelope
        event = type(envelope.body).__name__ if envelope is not None else "?"
        self._rows.append((event, self.lines[-1]))
        if envelope is None:
            return
        if isinstance(envelope.body, WorkerPrepared) and envelope.body.task in self.spoilt:
            worker = envelope.body.worker
            trainee = next(h.workers[worker] for h in self.hosts.values() if worker in h.workers)
            self.spoilt[envelope.body.task](trainee)
        self._look(
            lambda after: (
                after.event == event and (after.name is None or is_about(envelope, after.name))
            )
        )

    def committed(self, trainee: Training) -> None:
        self._look(
            lambda after: after.iterations == trainee.iteration and after.name == trainee.spec.task
        )

    def _look(self, is_it: Callable[[After], bool]) -> None:
        """Has the moment of something come?"""
        for number, happening in enumerate(self._scenario.happenings):
            after = happening.after
            if after is None or not is_it(after):
                continue
            self._heard[number] = self._heard.get(number, 0) + 1
            if self._heard[number] == after.nth:
                self.later(after.after_ms, partial(self._fault, happening.fault))

    def _note(self, who: str, what: str) -> None:
        super()._note(who, what)
        self._rows.append(("", self.lines[-1]))

    # --- What is left to chance elsewhere -----------------------------------------------------

    def add_host(self, name: str, devices: int, kind: str = "cpu") -> Host:
        host = super().add_host(name, devices, kind)
        host.skew_ns = self._scenario.ahead_ms.get(name, 0) * 1_000_000
        return host

    def _mood(self) -> tuple[int, str]:
        return self.moods.pop(0) if self.moods else (_SOLVE_MS, "good")

    def _restart_ms(self) -> int:
        return self.away_ms


def run(scenario: Scenario) -> Report:
    """Run it to its end; the same scenario gives the same report, byte for byte."""

    async def main() -> Report:
        simulation = Scripted(scenario)
        return simulation.report(await simulation.run())

    return virtual.run(main)
