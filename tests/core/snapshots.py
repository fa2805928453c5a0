"""Snapshots to test with."""

from unicron.controlplane.core.snapshot import (
    LogFacts,
    Snapshot,
    UnreadSoFar,
    entry_hash,
    vocabulary,
)
from unicron.controlplane.core.state import FOLD_VERSION


def snapshot_of(story, seq, /, **other):
    """What an instance would keep of a story's log after the entry `seq`."""
    fields = {
        "cluster": "c",
        "birth": "b",
        "seq": seq,
        "entry": entry_hash(story.log[seq - 1]),
        "fold_version": FOLD_VERSION,
        "vocabulary": vocabulary(),
        "version": "test",
        "chain": story.chains[seq].hex(),
        "control_seq": max(r.seq for r in story.log[:seq] if ".control." in r.subject),
        "leadership": story.log[0].envelope.body,
        "problem": None,
        "losses": {},
        "unread": UnreadSoFar(),
        "state": story.states[seq],
    }
    return Snapshot(**{**fields, **other})


def facts_of(story, seq, /, **other):
    """The story's log, as a snapshot of `seq` is held against it."""
    last = len(story.log)
    fields = {
        "cluster": "c",
        "birth": "b",
        "last_seq": last,
        "seq": seq,
        "entry": story.log[seq - 1] if seq <= last else None,
    }
    return LogFacts(**{**fields, **other})
