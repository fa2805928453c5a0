"""Limits on the monotonic clock."""

from unicron.controlplane.runtime.timers import Timers


def test_a_limit_starts_when_its_wait_appears_and_ends_with_it():
    timers = Timers()
    timers.update({"a": 100}, 0)
    timers.update({"a": 100, "b": 30}, 50)
    assert timers.due(79) == []
    assert timers.due(80) == [("b", 30)]
    assert timers.due(100) == [("b", 30), ("a", 100)]
    timers.update({"b": 30}, 90)
    assert timers.due(1000) == [("b", 30)]


def test_a_wait_that_comes_back_has_its_full_limit_again():
    timers = Timers()
    timers.update({"a": 100}, 0)
    timers.update({}, 60)
    timers.update({"a": 100}, 90)
    assert timers.due(150) == []
    assert timers.due(190) == [("a", 100)]


def test_restart_gives_all_their_full_limit():
    timers = Timers()
    timers.update({"a": 100}, 0)
    timers.restart()
    timers.update({"a": 100}, 90)
    assert timers.due(150) == []


def test_the_next_expiry():
    timers = Timers()
    assert timers.next_ms(0) is None
    timers.update({"a": 100, "b": 30}, 0)
    assert timers.next_ms(10) == 20
    assert timers.next_ms(50) == 0
