"""Logs of simulated nights, each made once."""

from functools import cache

from unicron.controlplane.replay import IncidentBook
from unicron.controlplane.testing import scripted, simulation
from unicron.controlplane.testing.scenario import parse
from unicron.controlplane.testing.seeds import options_of

#: Tasks that take devices from each other; hangs, sick nodes, stores and agents that die.
SEEDS = (0, 8)

_SCENARIO = """# X-00: one thing happens
node n1 with 2 devices
node n2 with 2 devices
node n3 with 2 devices
task gpt of 100 iterations, 8 micro-batches, at most 4 devices

{text}

until everything has ended within 90 s
expect gpt completed
"""


@cache
def night_of(seed: int) -> IncidentBook:
    """The book of a seed's log."""
    return IncidentBook(simulation.run(options_of(seed)).log)


@cache
def incident_of(text: str) -> IncidentBook:
    """The book of a run in which this happens to a task on four devices of three nodes."""
    report = scripted.run(parse(_SCENARIO.format(text=text), "x.txt"))
    assert report.held, report.wrong()
    return IncidentBook(report.outcome.log)
