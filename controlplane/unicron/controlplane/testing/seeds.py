"""From a seed to a run: the cluster, its weather, and a random subset of all faults."""

import random

from unicron.controlplane.testing.faults import EXCEPTIONS, KINDS, PHASES
from unicron.controlplane.testing.network import Weather
from unicron.controlplane.testing.options import (
    Fault,
    NodeOptions,
    Options,
    Submission,
    task_spec,
)
from unicron.controlplane.testing.pace import PaceOptions

#: How often a kind comes, before the seed has its say.
_WEIGHTS = {
    "kill": 30,
    "hang": 4,
    "exception": 8,
    "reset": 12,
    "slow": 2,
    "section": 2,
    "unkillable": 1,
    "power": 3,
    "agent": 3,
    "stop-agent": 1,
    "join": 3,
    "cut": 3,
    "device": 2,
    "store": 2,
    "outage": 1,
    "repeat": 3,
    "old-order": 4,
    "unknown": 1,
    "crash": 1.2,
    "stop": 2,
    "cut-control": 2,
    "second": 0.7,
    "planner": 4,
    "submit": 2,
}
#: How many control planes those seeds have that have several, by their remainder of 20; and what
#: they suffer besides.
_INSTANCES = {0: 3, 5: 2}
_SEVERAL = "lease"
#: Comes in half of the seeds, beside the others.
_SOFTWARE = "software"
assert {*_WEIGHTS, _SEVERAL, _SOFTWARE} == set(KINDS)

#: Most a fault of a kind lasts, in milliseconds.
_LONGEST_MS = {
    "slow": 8_000,
    "section": 20_000,
    "power": 12_000,
    "agent": 6_000,
    "stop-agent": 8_000,
    "cut": 12_000,
    "device": 20_000,
    "software": 30_000,
    "outage": 8_000,
    "stop": 8_000,
    "cut-control": 8_000,
}


def options_of(seed: int) -> Options:
    """The run of a seed. Swarm: each seed leaves out some kinds and favours others."""
    rng = random.Random(f"{seed}:options")
    nodes = rng.randint(3, 7)
    faults_ms = rng.choice([160_000, 210_000, 270_000])
    micro_batch_ms = rng.choice([150, 300, 500])
    instances = _INSTANCES.get(seed % 20, 1)
    faults = _faults(random.Random(f"{seed}:faults"), faults_ms)
    if instances > 1:
        faults = _with_leases(random.Random(f"{seed}:leases"), faults, faults_ms)
    faults = _with_software(random.Random(f"{seed}:software"), faults, faults_ms)
    return Options(
        seed=seed,
        nodes=tuple(
            NodeOptions(name=f"n{n}", devices=rng.randint(2, 5), at_ms=rng.randint(0, 2000))
            for n in range(1, nodes + 1)
        ),
        tasks=tuple(
            _task(rng, number, faults_ms, micro_batch_ms) for number in range(rng.randint(1, 3))
        ),
        faults=faults,
        weather=Weather(
            latency_us=rng.choice([400, 2000, 20_000]),
            late_permille=rng.choice([0, 3, 20]),
            late_ms=rng.choice([50, 500, 2000]),
            loss_permille=rng.choice([0, 5, 50]),
        ),
        pace=PaceOptions(
            micro_batch_ms=micro_batch_ms,
            spread_percent=rng.choice([5, 30, 100]),
            fork_ms=rng.choice([50, 300]),
            build_ms=rng.choice([300, 2000]),
            regroup_ms=rng.choice([30, 400]),
            transfer_ms=rng.choice([50, 2000]),
        ),
        faults_ms=faults_ms,
        window_ms=rng.choice([2_000, 120_000]),
        skew_ms=rng.choice([0, 0, 900_000]),
        nodes_max=nodes + 2,
        instances=instances,
    )


def _task(rng: random.Random, number: int, faults_ms: int, micro_batch_ms: int) -> Submission:
    """Long enough to be hit by most of the faults."""
    micro_batches = rng.choice([7, 12, 16])
    iteration_ms = micro_batch_ms * micro_batches // 3
    spec = task_spec(
        ("gpt", "bert", "odd")[number],
        iterations=rng.randint(faults_ms // 2, faults_ms) // iteration_ms,
        micro_batches=micro_batches,
        weight_milli=rng.choice([300, 1000, 1000, 1500]),
        min_devices=rng.choice([0, 1, 1, 2, 3]),
        max_devices=rng.choice([4, 12, 16]),
    )
    return Submission(spec=spec, at_ms=rng.randint(0, faults_ms // 4) if number else 0)


def _faults(rng: random.Random, faults_ms: int) -> tuple[Fault, ...]:
    left = {k: w * rng.choice([0.3, 1, 1, 3]) for k, w in _WEIGHTS.items() if rng.random() < 0.7}
    if not left:
        return ()
    gap_ms = rng.choice([600, 1200, 2400])
    kinds, weights = list(left), list(left.values())
    faults: list[Fault] = []
    at_ms = 3000
    while at_ms < faults_ms:
        at_ms += rng.randint(0, 2 * gap_ms)
        kind = rng.choices(kinds, weights)[0]
        faults.append(
            Fault(
                at_ms=at_ms,
                kind=kind,
                pick=rng.randrange(1 << 20),
                detail=_detail(rng, kind),
                for_ms=rng.randint(100, _LONGEST_MS.get(kind, 100)),
            )
        )
    return tuple(faults)


def _with_leases(
    rng: random.Random, faults: tuple[Fault, ...], faults_ms: int
) -> tuple[Fault, ...]:
    """... with what goes wrong between several control planes, some of it often."""
    more = [
        Fault(
            at_ms=rng.randint(3000, faults_ms),
            kind=kind,
            pick=rng.randrange(1 << 20),
            detail=rng.choice(["lost", "let go"]) if kind == _SEVERAL else "",
            for_ms=rng.randint(100, _LONGEST_MS.get(kind, 100)),
        )
        for kind in (_SEVERAL, "stop", "cut-control", "crash")
        for _ in range(rng.choice([0, 2, 6]))
    ]
    return tuple(sorted([*faults, *more], key=lambda f: f.at_ms))


def _with_software(
    rng: random.Random, faults: tuple[Fault, ...], faults_ms: int
) -> tuple[Fault, ...]:
    """... with versions that differ, sometimes from the beginning, before anybody has started."""
    more = [
        Fault(
            at_ms=rng.choice([rng.randint(0, 2500), rng.randint(3000, faults_ms)]),
            kind=_SOFTWARE,
            pick=rng.randrange(1 << 20),
            for_ms=rng.randint(100, _LONGEST_MS[_SOFTWARE]),
        )
        for _ in range(rng.choice([0, 0, 0, 1, 3, 6]))
    ]
    return tuple(sorted([*faults, *more], key=lambda f: f.at_ms))


def _detail(rng: random.Random, kind: str) -> str:
    phase = f"@{rng.choice(PHASES)}" if rng.random() < 0.6 else ""
    if kind in ("kill", "hang", "unkillable"):
        return phase
    if kind == "exception":
        return rng.choice(EXCEPTIONS) + phase
    if kind == "reset":
        return f"@{rng.choice(['regroup', 'transfer', 'reduction', 'vote'])}"
    if kind == "section":
        return "@forward"
    if kind in ("power", "cut"):
        return rng.choice(["seen", "silent"])
    if kind == "planner":
        return rng.choice(["late", "lost", "dead", "wrong"])
    return ""
