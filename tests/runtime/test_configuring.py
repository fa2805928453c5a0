"""Who leads brings into force what it was given; who was given nothing leaves it as it is."""

import pytest

from tests.core.story import SPEC
from tests.runtime.pair import Pair
from unicron import events as ev
from unicron.controlplane.runtime.writer import NotLeading

FEW = ev.Planning(quotas=(ev.Quota(tenant="lab", max_devices=1),))
MANY = ev.Planning(quotas=(ev.Quota(tenant="lab", max_devices=4),))


def configured(pair):
    """By whom, and what."""
    return [
        (r.envelope.body.by, r.envelope.body.planning)
        for r in pair.stream.entries
        if r.envelope is not None and isinstance(r.envelope.body, ev.ClusterConfigured)
    ]


async def test_what_the_leader_was_given_is_in_force_before_anything_is_decided():
    pair = Pair(planning={"a": FEW})
    async with pair.running("a"):
        await pair.engines["a"].submit(SPEC, by="test")
        state = await pair.agree()
        assert state.planning == FEW
        assert configured(pair) == [("control/a", FEW)]
        assert pair.stream.entries[1].envelope.body.planning == FEW  # right after the leadership


async def test_it_is_said_once_whoever_leads():
    pair = Pair(lease_ms=3_600_000, planning={"a": FEW, "b": FEW})
    async with pair.running("a", "b"):
        pair.scopes["a"].cancel()
        await pair.leads("b")
        await pair.engines["b"].submit(SPEC, by="test")
        assert configured(pair) == [("control/a", FEW)]


async def test_who_was_given_nothing_leaves_it_as_it_is():
    pair = Pair(lease_ms=3_600_000, planning={"a": FEW})
    async with pair.running("a", "b"):
        await pair.until(lambda: configured(pair))
        pair.scopes["a"].cancel()
        await pair.leads("b")
        await pair.engines["b"].submit(SPEC, by="test")
        assert pair.engines["b"].state.planning == FEW
        assert configured(pair) == [("control/a", FEW)]


async def test_of_two_with_different_files_the_one_that_leads_counts():
    pair = Pair(lease_ms=3_600_000, planning={"a": FEW, "b": MANY})
    async with pair.running("a", "b"):
        await pair.until(lambda: configured(pair))
        assert pair.engines["b"].state.planning in (FEW, ev.Planning())  # it only follows
        pair.scopes["a"].cancel()
        await pair.until(lambda: pair.engines["b"].state.planning == MANY)
        assert configured(pair) == [("control/a", FEW), ("control/b", MANY)]


async def test_it_can_be_changed_while_it_runs():
    pair = Pair(planning={"a": FEW})
    async with pair.running("a", "b"):
        a, b = pair.engines["a"], pair.engines["b"]
        assert await a.configure(MANY, by="anna")
        assert await a.configure(MANY, by="anna") is None
        assert a.state.planning == MANY
        with pytest.raises(ValueError, match=r"repair_ms is 5"):
            await a.configure(ev.Planning(repair_ms=5), by="anna")
        with pytest.raises(NotLeading):
            await b.configure(FEW, by="ben")
        assert configured(pair) == [("control/a", FEW), ("anna", MANY)]
