"""Measurements that others have printed, as rows the model can be run on: `data/published.toml`."""

from __future__ import annotations

from functools import cache

import msgspec

from unicron.planner.cost import reading
from unicron.planner.cost.accelerators import accelerator
from unicron.planner.cost.constants import Constants
from unicron.planner.cost.model import Transformer, flops_per_sample
from unicron.planner.cost.steptime import step_time
from unicron.planner.cost.training import (
    Execution,
    Recompute,
    Training,
    check_execution,
)
from unicron.planner.errors import BadProblem


class Paper(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows come from, and the kind of device they were measured on."""

    title: str
    arxiv: str
    device: str


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement. Either `seconds` an iteration, or `teraflops`: operations by eq. 3 (with
    recomputation) per second and device, in 10**12. `confirmed`: who agrees with it, or ""."""

    paper: str
    table: int
    name: str
    layers: int
    hidden: int
    heads: int
    tp: int
    pp: int
    dp: int
    virtual: tuple[int, ...]
    global_batch: int
    micro_batch: int
    recompute: Recompute
    sequence_parallel: bool
    overlap: bool
    confirmed: str
    seconds: float = 0.0
    teraflops: float = 0.0
    billions: float = 0.0
    aggregate_pflops: float = 0.0
    days: float = 0.0

    @property
    def model(self) -> Transformer:
        """Both papers: sequences of 2048 tokens, a vocabulary of 51,200."""
        return Transformer(
            layers=self.layers,
            hidden=self.hidden,
            heads=self.heads,
            sequence=2048,
            vocabulary=51_200,
        )

    @property
    def training(self) -> Training:
        """As Megatron of that time trained: fp16 gradients, attention that isn't fused."""
        return Training(
            global_batch=self.global_batch,
            exact=False,
            overlap=self.overlap,
            gradient_bytes=2,
            fused_attention=False,
        )

    @property
    def executions(self) -> tuple[Execution, ...]:
        """The layout, once for each number of chunks it may have had."""
        return tuple(
            Execution(
                tp=self.tp,
                pp=self.pp,
                dp=self.dp,
                virtual=virtual,
                micro_batch=self.micro_batch,
                recompute=self.recompute,
                sequence_parallel=self.sequence_parallel,
            )
            for virtual in self.virtual
        )

    @property
    def devices(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def measured(self) -> float:
        """Seconds of an iteration."""
        if self.seconds:
            return self.seconds
        work = self.global_batch * flops_per_sample(self.model, recompute=True)
        return work / (self.teraflops * 1e12 * self.devices)


@cache
def papers() -> dict[str, Paper]:
    """Short name -> paper."""
    return {
        name: reading.row(entry, Paper, f"published.toml: {name}")
        for name, entry in reading.shipped("published.toml").items()
        if name != "row"
    }


@cache
def rows() -> tuple[Row, ...]:
    """All rows, in the order of the file. Raises `BadProblem` if one doesn't fit its model."""
    entries = reading.shipped("published.toml")["row"]
    assert isinstance(entries, list)
    return tuple(
        check_row(reading.row(entry, Row, f"published.toml: row[{index}]"), index)
        for index, entry in enumerate(entries)
    )


def predicted(row: Row, known: Constants) -> float:
    """Seconds of an iteration by the model, of the fastest of the row's executions."""
    device = accelerator(papers()[row.paper].device)
    return min(
        step_time(row.model, row.training, execution, device, known).total
        for execution in row.executions
    )


def error(row: Row, known: Constants) -> float:
    """Predicted over measured, minus one."""
    return predicted(row, known) / row.measured - 1


def check_row(row: Row, index: int) -> Row:
    """The row; `BadProblem` if its paper isn't there, it has no or two measurements, or its layout
    doesn't fit its model."""
    place = f"published.toml: row[{index}]"
    if row.paper not in papers():
        raise BadProblem(f"{place}.paper", f"is {row.paper!r}", "name one of the tables above")
    if (row.seconds > 0) == (row.teraflops > 0):
        raise BadProblem(place, "needs one measurement", "give seconds or teraflops")
    for execution in row.executions:
        check_execution(row.model, row.training, execution)
    return row
