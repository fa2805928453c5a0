"""Instances that begin from snapshots: the run is the same, event for event, as without any."""

import pytest

from unicron.controlplane.runtime.following import Follower
from unicron.controlplane.testing import simulation, snapshots
from unicron.controlplane.testing.seeds import options_of


@pytest.mark.parametrize("seed", [8, 14])
def test_a_run_is_the_same_with_and_without_snapshots(seed, monkeypatch):
    begun = []
    resume = Follower.resume

    def noted(follower, snapshot):
        begun.append(snapshot.seq)
        resume(follower, snapshot)

    monkeypatch.setattr(Follower, "resume", noted)
    monkeypatch.setattr(snapshots, "_EVERY", 10**9)
    without = simulation.run(options_of(seed))
    assert not begun
    monkeypatch.setattr(snapshots, "_EVERY", 7)
    with_them = simulation.run(options_of(seed))
    assert begun
    assert with_them.lines == without.lines
    assert with_them.log == without.log
    assert with_them.violations == ()
