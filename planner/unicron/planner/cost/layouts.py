"""The fastest layout that fits, for every number of devices: T(t, x) with what it takes to get it.

For each tensor and pipeline size the ways to run a micro-batch (chunks, micro-batch size,
recomputation, optimizer) are worked out once; what depends on the data parallel size is added for
each number of devices. Memory is looked at from the fastest way on, so most are never looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from unicron.planner.cost.accelerators import Accelerator, check_accelerator
from unicron.planner.cost.constants import Constants, resolved
from unicron.planner.cost.memory import Footprint, footprints, memory_needed, tree_buffers
from unicron.planner.cost.model import Transformer, check_model, flops_per_sample
from unicron.planner.cost.steptime import (
    StageTime,
    exchange_time,
    optimizer_time,
    stage_time,
    stages_apart,
    step_time,
    tied_time,
)
from unicron.planner.cost.training import (
    RECOMPUTE,
    Execution,
    Recompute,
    Training,
    check_training,
    micro_batches,
)
from unicron.planner.cost.validity import require_one_of, require_positive
from unicron.planner.errors import BadProblem
from unicron.planner.problem import Layout, LayoutOption
from unicron.planner.validation import DEVICES_MAX


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """What may be chosen among. `pp` () stands for all that divide the layers.

    `micro_batches` in samples. Several of `tp` must divide one another. `virtual` 1 forbids
    interleaving. For a task that is to stay bit-identical at every size, name a single tp, pp and
    micro-batch: the gradient tree is one of micro-batches, and split products round otherwise.
    """

    tp: tuple[int, ...] = (1, 2, 4, 8)
    pp: tuple[int, ...] = ()
    virtual: tuple[int, ...] = (1, 2, 3, 4, 5, 6, 8)
    micro_batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    recompute: tuple[Recompute, ...] = RECOMPUTE
    distributed_optimizer: tuple[bool, ...] = (False, True)


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A layout and what the model says of it.

    `step_us`: an iteration. `memory_bytes`: all that the fullest device holds; `state_bytes` of it
    are weights and optimizer state, what a new member has to be sent. `throughput_gflops`: of the
    whole task, each of the model's operations counted once, however often it is computed.
    """

    execution: Execution
    kind: str
    step_us: int
    memory_bytes: int
    state_bytes: int
    throughput_gflops: int

    @property
    def devices(self) -> int:
        return self.execution.devices

    def option(self, kind: str = "") -> LayoutOption:
        """As the planner takes it: on devices of `kind`, named as nodes name theirs; "": of any."""
        return LayoutOption(
            layout=self.execution.layout, throughput_gflops=self.throughput_gflops, kind=kind
        )


def layout_table(
    model: Transformer,
    training: Training,
    device: Accelerator,
    max_devices: int,
    choices: Choices | None = None,
    *,
    min_devices: int = 1,
    known: Constants | None = None,
) -> tuple[Choice, ...]:
    """The fastest layout for each number of devices for which one fits, ascending.

    Sizes above one node's are whole tensor parallel groups; a group never spans nodes. Shares of
    the global batch may be uneven, so nearly every multiple of tp x pp is possible. Ties go to the
    smaller tp, then pp. Raises `BadProblem` naming the field.
    """
    search = _Search(model, training, device, choices or Choices(), known)
    require_positive(min_devices=min_devices, max_devices=max_devices)
    if max_devices > DEVICES_MAX:
        raise BadProblem("max_devices", f"is {max_devices}", f"give at most {DEVICES_MAX}")
    best: dict[int, tuple[float, Execution]] = {}
    for tp, pp in search.shapes():
        group = tp * pp
        for dp in range(-(-min_devices // group), max_devices // group + 1):
            ways = search.ways(tp, pp, dp, max_devices // group)
            found = search.fastest(ways, dp, best.get(group * dp))
            if found is not None:
                best[group * dp] = found
            elif dp > search.replicas_max:
                break
    return tuple(search.choice(*best[devices]) for devices in sorted(best))


def best_layout(
    model: Transformer,
    training: Training,
    device: Accelerator,
    devices: int,
    choices: Choices | None = None,
    known: Constants | None = None,
) -> Choice | None:
    """The fastest layout for exactly so many devices; None if nothing fits."""
    search = _Search(model, training, device, choices or Choices(), known)
    require_positive(devices=devices)
    found = None
    for tp, pp in search.shapes():
        if devices % (tp * pp) == 0:
            dp = devices // (tp * pp)
            found = search.fastest(search.ways(tp, pp, dp, dp), dp, found) or found
    return None if found is None else search.choice(*found)


def assess(
    model: Transformer,
    training: Training,
    device: Accelerator,
    execution: Execution,
    known: Constants | None = None,
) -> Choice:
    """What the model says of a given layout, whether its memory suffices or not. Raises
    `BadProblem` if the execution doesn't fit the model."""
    known = resolved(known)
    seconds = step_time(model, training, execution, device, known).total
    return _choice(model, training, device, execution, known, seconds)


def pareto(choices: Iterable[Choice]) -> tuple[Choice, ...]:
    """Those that no other beats with as few devices, ascending in devices and in throughput.

    The rest can go where devices only cost: not where using more of them is an end in itself.
    """
    kept: list[Choice] = []
    for choice in sorted(choices, key=lambda each: (each.devices, -each.throughput_gflops)):
        if not kept or choice.throughput_gflops > kept[-1].throughput_gflops:
            kept.append(choice)
    return tuple(kept)


def options(choices: Iterable[Choice], kind: str = "") -> tuple[LayoutOption, ...]:
    """The planner's options, ascending in devices: of each layout the fastest way to run it."""
    fastest: dict[Layout, Choice] = {}
    for choice in choices:
        layout = choice.execution.layout
        if layout not in fastest or choice.step_us < fastest[layout].step_us:
            fastest[layout] = choice
    ordered = sorted(fastest.values(), key=lambda each: each.devices)
    return tuple(choice.option(kind) for choice in ordered)


def _choice(
    model: Transformer,
    training: Training,
    device: Accelerator,
    execution: Execution,
    known: Constants,
    seconds: float,
) -> Choice:
    needed = memory_needed(model, training, execution, known)
    work = flops_per_sample(model) * training.global_batch
    return Choice(
        execution=execution,
        kind=device.name,
        step_us=max(1, round(seconds * 1e6)),
        memory_bytes=needed.total,
        state_bytes=needed.weights + needed.optimizer,
        throughput_gflops=max(1, round(work / seconds / 1e9)),
    )


class _Way(msgspec.Struct, frozen=True, gc=False):
    """One way to run a stage, for all data parallel sizes that have its neighbours as near."""

    execution: Execution
    stage: StageTime
    total: int  # micro-batches of the global batch
    steady: float
    bubble: float
    tied: float
    footprints: tuple[Footprint, ...]

    def bytes_with(self, training: Training, execution: Execution) -> int:
        """Of the fullest device, with the replicas that `execution` says."""
        shards = execution.dp if execution.distributed_optimizer else 1
        buffers = tree_buffers(training, execution)
        most = -(-self.total // execution.dp)
        return max(stage.total(most, buffers, shards) for stage in self.footprints)

    def fits(self, memory_bytes: int, training: Training, replicas: int) -> bool:
        """Whether it could with at most so many replicas. More of them never hold more, but for
        the tree's buffers, of which at least one is needed."""
        shards = replicas if self.execution.distributed_optimizer else 1
        buffers = int(training.exact and self.total > 1)
        least = -(-self.total // min(replicas, self.total))
        return all(s.total(least, buffers, shards) <= memory_bytes for s in self.footprints)


class _Search:
    """The arguments of a search, checked, and its two steps."""

    def __init__(
        self,
        model: Transformer,
        training: Training,
        device: Accelerator,
        choices: Choices,
        known: Constants | None,
    ) -> None:
        check_model(model)
        check_accelerator(device)
        check_training(training)
        _check_choices(choices)
        self.model, self.training, self.device = model, training, device
        self.choices, self.known = choices, resolved(known)
        self.sizes = tuple(
            size for size in choices.micro_batches if training.global_batch % size == 0
        )
        if not self.sizes:
            raise BadProblem(
                "micro_batches",
                f"none of {choices.micro_batches} divides the global batch {training.global_batch}",
                "name a divisor",
            )
        self._ways: dict[tuple[int, int, bool], tuple[_Way, ...]] = {}
        self.replicas_max = training.global_batch // min(self.sizes)

    def shapes(self) -> Iterator[tuple[int, int]]:
        """Tensor and pipeline sizes that divide the model and fit into a node."""
        model = self.model
        for tp in sorted(self.choices.tp):
            if self.device.node_devices % tp or model.groups % tp or model.ffn % tp:
                continue
            for pp in sorted(self.choices.pp) or range(1, model.layers + 1):
                if model.layers % pp == 0:
                    yield tp, pp

    def ways(self, tp: int, pp: int, dp: int, replicas: int) -> tuple[_Way, ...]:
        """All ways to run a stage with `dp` replicas that could fit with up to `replicas`."""
        apart = stages_apart(self.training, Execution(tp=tp, pp=pp, dp=dp), self.device)
        key = tp, pp, apart
        if key not in self._ways:
            self._ways[key] = self._all_ways(tp, pp, dp, replicas)
        return self._ways[key]

    def _all_ways(self, tp: int, pp: int, dp: int, replicas: int) -> tuple[_Way, ...]:
        found: list[_Way] = []
        for micro_batch in self.sizes:
            for virtual in self._chunks(pp):
                for recompute in self.choices.recompute:
                    if recompute == "selective" and self.training.fused_attention:
                        continue  # there are no scores to recompute
                    for sharded in self.choices.distributed_optimizer:
                        execution = Execution(
                            tp=tp,
                            pp=pp,
                            dp=dp,
                            virtual=virtual,
                            micro_batch=micro_batch,
                            recompute=recompute,
                            sequence_parallel=tp > 1 and self.model.sequence % tp == 0,
                            distributed_optimizer=sharded,
                        )
                        way = self._way(execution)
                        if way.fits(self.device.memory_bytes, self.training, replicas):
                            found.append(way)
        return tuple(found)

    def fastest(
        self, ways: Sequence[_Way], dp: int, beaten: tuple[float, Execution] | None
    ) -> tuple[float, Execution] | None:
        """Seconds and execution of the fastest of these ways that fits with `dp` replicas and is
        faster than `beaten`; None if there is none."""
        limit = beaten[0] if beaten is not None else float("inf")
        timed = []
        for index, way in enumerate(ways):
            seconds = -(-way.total // dp) * way.steady + way.bubble
            if seconds < limit and dp <= way.total:
                timed.append((seconds, index))
        timed.sort()
        found = None
        for seconds, index in timed:
            if seconds >= limit:
                break
            way = ways[index]
            execution = msgspec.structs.replace(way.execution, dp=dp)
            if execution.virtual > 1 and way.total % (dp * execution.pp):
                continue
            total = seconds + self._rest(execution, way)
            room = self.device.memory_bytes
            if total < limit and way.bytes_with(self.training, execution) <= room:
                limit, found = total, (total, execution)
        return found

    def choice(self, seconds: float, execution: Execution) -> Choice:
        return _choice(self.model, self.training, self.device, execution, self.known, seconds)

    def _chunks(self, pp: int) -> Iterator[int]:
        layers = self.model.layers // pp
        for virtual in sorted(self.choices.virtual):
            if virtual == 1 or (pp > 1 and layers % virtual == 0):
                yield virtual

    def _way(self, execution: Execution) -> _Way:
        stage = stage_time(self.model, self.training, execution, self.device, self.known)
        return _Way(
            execution,
            stage,
            micro_batches(self.training, execution),
            stage.steady,
            (execution.pp - 1) / execution.virtual * stage.passing,
            tied_time(self.model, self.training, execution, self.device, self.known),
            footprints(self.model, self.training, execution, self.known),
        )

    def _rest(self, execution: Execution, way: _Way) -> float:
        """What depends on dp beside the number of micro-batches."""
        parameters = way.footprints[0].parameters
        exchange = exchange_time(
            self.training, execution, self.device, self.known, parameters, way.stage.backward
        )
        update = optimizer_time(execution, self.device, self.known, parameters)
        return exchange + way.tied + update


def _check_choices(choices: Choices) -> None:
    for name in ("tp", "virtual", "micro_batches"):
        values = getattr(choices, name)
        if not values:
            raise BadProblem(name, "is empty", "name at least one")
        require_positive(**{f"{name}[{i}]": value for i, value in enumerate(values)})
    require_positive(**{f"pp[{i}]": value for i, value in enumerate(choices.pp)})
    if not choices.recompute or not choices.distributed_optimizer:
        raise BadProblem("choices", "leave nothing to choose", "name at least one of each")
    for recompute in choices.recompute:
        require_one_of("recompute", recompute, RECOMPUTE)
    sizes = sorted(set(choices.tp))
    for smaller, larger in pairwise(sizes):
        if larger % smaller:
            raise BadProblem(
                "tp", f"{smaller} and {larger} don't divide one another", "give 1, 2, 4, 8"
            )
