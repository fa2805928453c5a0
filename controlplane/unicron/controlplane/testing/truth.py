"""False alarms: what the control plane thinks, compared with how things are.

Nobody can know from the log that a node which was declared lost was well; the simulator can. It
looks only where a mistake would be one: the network is not so late that silence is no wonder, and
the node has been left alone for a while.
"""

from typing import TYPE_CHECKING, Final

from unicron.controlplane.testing.network import Weather
from unicron.events import NodeLost, Recorded, TaskStalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unicron.controlplane.testing.hosts import Host
    from unicron.controlplane.testing.simulation import Simulation
    from unicron.controlplane.testing.trainee import Trainee

#: Whoever was in trouble so recently may still be taken for lost, or for hanging.
_MEMORY_S: Final = 10.0
_LOOK_MS: Final = 250
_LATE_MS_MAX: Final = 500
_LOSS_PERMILLE_MAX: Final = 5


class Truth:
    """Looks at all hosts four times a second."""

    def __init__(self, sim: "Simulation") -> None:
        self._sim = sim
        self._trouble_s: dict[str, float] = {}
        self._calm = _is_calm(sim.options.weather)
        self._look()

    def _look(self) -> None:
        now = self._sim.now_s
        for host in self._sim.hosts.values():
            if _in_trouble(host) or host.name not in self._trouble_s:
                self._trouble_s[host.name] = now
        self._sim.later(_LOOK_MS, self._look)

    def false_alarms(self, recorded: Recorded) -> "Iterator[tuple[str, str]]":
        """Name and words of what an event that took effect is wrong about."""
        body = recorded.envelope.body if recorded.envelope is not None else None
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


def _in_trouble(host: "Host") -> bool:
    """Something was done to it that others must notice."""
    connected = host.client is not None and host.client.link.up
    return not host.up or host.is_cut or host.mute or not connected
