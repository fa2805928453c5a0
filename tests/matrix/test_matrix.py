"""Guarantee: whoever is killed, stopped or started again, at whichever step of a fact's way to a
command, facts count once, there is one decision a cause, and all hold the same state."""

import asyncio

import pytest

from tests.matrix import campaign
from tests.matrix.cells import CELLS

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def outcomes():
    return asyncio.run(campaign.run(iter(CELLS)))


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_it_comes_to_rest(outcomes, cell):
    assert dict(outcomes)[cell] == ""


def test_facts_once_one_decision_a_cause_equal_states(outcomes):
    """On each fleet's whole history, with all its faults."""
    histories = [text for cell, text in outcomes if cell is None]
    assert histories
    assert [text for text in histories if text] == []
