import hashlib

from hypothesis import given
from hypothesis import strategies as st

from unicron.events import EMPTY_CHAIN, chain_of, extend_chain, record

RAW = st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=8)), max_size=6)


def entries(raw):
    return [record(seq, subject, data, 0) for seq, (subject, data) in enumerate(raw, 1)]


def test_the_chain_is_what_its_definition_says():
    assert hashlib.sha256(b"unicron chain v1").digest() == EMPTY_CHAIN
    expected = hashlib.sha256(EMPTY_CHAIN + b"\0\0\0\0\0\0\0\x07\0\0\0\x03a.bxyz").digest()
    assert extend_chain(EMPTY_CHAIN, 7, "a.b", b"xyz") == expected


@given(RAW, RAW)
def test_equal_chains_mean_equal_histories(one, other):
    assert (chain_of(entries(one)) == chain_of(entries(other))) == (one == other)


@given(RAW, st.integers(0, 6))
def test_the_chain_can_be_taken_up_anywhere(raw, cut):
    events = entries(raw)
    assert chain_of(events[cut:], start=chain_of(events[:cut])) == chain_of(events)


def test_bytes_moved_between_subject_and_data_show():
    assert chain_of(entries([("ab", b"c")])) != chain_of(entries([("a", b"bc")]))
