"""False opinions: what the control plane thinks, compared with how things are.

Nobody can know from the log that a node which was declared lost was well; the simulator can. It
looks only where a mistake would be one: the network is not so late that silence is no wonder, and
the node has been left alone for a while.
"""

from typing import TYPE_CHECKING, Final

from unicron.controlplane.core import fold_task
from unicron.controlplane.core.state import ClusterState
from unicron.controlplane.testing.network import Weather
from unicron.events import DeadlinePassed, NodeLost, Recorded, TaskMeasured, TaskStalled, WorkerId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unicron.controlplane.testing.hosts import Host
    from unicron.controlplane.testing.instances import Instance
    from unicron.controlplane.testing.simulation import Simulation
    from unicron.controlplane.testing.trainee import Trainee

#: Whoever was in trouble so recently may still be taken for lost, or for hanging.
_MEMORY_S: Final = 10.0
_LOOK_MS: Final = 250
_LATE_MS_MAX: Final = 500
_LOSS_PERMILLE_MAX: Final = 5
#: Beats that are late make a time shorter or longer; not by more, in calm weather.
_SHORT_PERCENT: Final = 75


class Truth:
    """Looks at all hosts four times a second."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._trouble_s: dict[str, float] = {}
        self._control_trouble_s = 0.0
        self._calm = _is_calm(sim.options.weather)
        self._look()

    def _look(self) -> None:
        now = self._sim.now_s
        if not any(_leads_well(i) for i in self._sim.instances):
            self._control_trouble_s = now
        for host in self._sim.hosts.values():
            if _in_trouble(host) or host.name not in self._trouble_s:
                self._trouble_s[host.name] = now
        self._sim.later(_LOOK_MS, self._look)

    def false_alarms(self, recorded: Recorded, before: ClusterState) -> "Iterator[tuple[str, str]]":
        """Name and words of what an event that took effect on `before` is wrong about."""
        body = recorded.envelope.body if recorded.envelope is not None else None
        if isinstance(body, DeadlinePassed):
            yield from self._limits_passed_for_nothing(body.key, before)
        if not self._calm:
            return
        if isinstance(body, NodeLost) and self._was_well(body.node):
            host = self._sim.hosts[body.node]
            if host.incarnation == body.incarnation:
                yield "no_healthy_node_is_lost", f"{body.node} is well: {body.evidence}"
        if isinstance(body, TaskStalled):
            for worker in body.behind:
                trainee = self._sim.hosts[worker.partition("/")[0]].workers.get(worker)
                if trainee is None or trainee.life in self._sim.declared:
                    continue
                if self._trains_well(trainee) and self._was_well(trainee.node):
                    yield "no_innocent_is_blamed", f"{worker} is well: {body.evidence}"
        if isinstance(body, TaskMeasured):
            spec = before.tasks[body.task].spec
            share = -(-spec.micro_batches // body.data_parallel)
            least_us = share * self._sim.pace.usual_us(100)
            if body.step_us < least_us * _SHORT_PERCENT // 100:
                words = f"{body.step_us} us of {body.task}, which needs {least_us}"
                yield "no_time_is_too_short", words

    def _limits_passed_for_nothing(
        self, key: str, before: ClusterState
    ) -> "Iterator[tuple[str, str]]":
        """Orders are said again every second, so while the control plane, the network and whoever
        is to carry them out are well, no limit on that may pass, whatever gets lost."""
        kind, _, name = key.partition(":")
        subject, _, number = name.rpartition(":")
        if self._sim.now_s - self._control_trouble_s <= _MEMORY_S:
            return
        awaited: list[tuple[str, int]] = []
        if kind in ("start", "stop") and (worker := before.workers.get(subject)) is not None:
            awaited = [(worker.worker, int(number))]
        task = before.tasks.get(subject)
        if kind == "quiesce" and task is not None:
            names = fold_task.awaited(before, task)
            awaited = [(w, before.workers[w].incarnation) for w in names]
        for worker_name, incarnation in awaited:
            if self._could_obey(kind, worker_name, incarnation):
                yield "no_limit_passes_for_nothing", f"{key}: {worker_name} could have obeyed"

    def _could_obey(self, kind: str, worker: str, incarnation: int) -> bool:
        """It, or its agent, was there and well for long, and has not done what it was told."""
        node, _, device = worker.partition("/")
        host = self._sim.hosts[node]
        if not self._was_well(node):
            return False
        trainee = host.workers.get(WorkerId(worker))
        mine = trainee is not None and trainee.alive and trainee.life[1] == incarnation
        if kind == "stop":
            return mine and worker not in host.unkillable
        if not mine or trainee is None:  # nobody has begun it
            newest = trainee.life[1] if trainee is not None else 0
            return kind == "start" and newest < incarnation and int(device) not in host.dead_devices
        connected = trainee.client is not None and trainee.client.link.up
        busy = trainee.life in self._sim.declared
        return self._trains_well(trainee) and not busy and connected

    def _was_well(self, node: str) -> bool:
        host, now = self._sim.hosts[node], self._sim.now_s
        if _in_trouble(host):
            return False
        # A short cut may lie between two looks.
        return now - max(self._trouble_s.get(node, now), host.mended_s) > _MEMORY_S

    def _trains_well(self, trainee: "Trainee") -> bool:
        if not trainee.alive or trainee.hung or trainee.slowness_percent > 100:
            return False
        # Three times as slow is as long as a hang takes to be one; what began slowly ends slowly.
        return self._sim.now_s - trainee.slow_until_s > _MEMORY_S


def _is_calm(weather: Weather) -> bool:
    late = weather.late_permille and weather.late_ms > _LATE_MS_MAX
    return not late and weather.loss_permille <= _LOSS_PERMILLE_MAX


def _leads_well(instance: "Instance") -> bool:
    return instance.alive and instance.engine.leading and instance.unhurt and instance.link.up


def _in_trouble(host: "Host") -> bool:
    """Something was done to it that others must notice."""
    connected = host.client is not None and host.client.link.up
    return not host.up or host.is_cut or host.mute or not connected
