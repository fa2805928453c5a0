"""A shut generation frees whoever is blocked in it, at any step of it, and is never entered."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from tests.worker_shim.megatron.conftest import MICRO_BATCHES, small_task
from tests.worker_shim.megatron.crew import broken, iterate, together
from unicron.worker_shim.unblock import Connections, GenerationShut

SMALL = small_task()


# --- Plain sockets, in this process ---


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextlib.contextmanager
def connected(listener):
    with socket.create_connection(listener.getsockname()) as near, listener.accept()[0] as far:
        yield near, far


def is_open(near, far):
    try:
        far.sendall(b"x")
        near.settimeout(1)
        return near.recv(1) == b"x"
    except OSError:
        return False


def test_it_frees_a_blocked_thread(listener):
    connections = Connections()
    connections.begin(1, 2)
    with connected(listener) as (near, _):
        freed = threading.Event()
        threading.Thread(target=lambda: (near.recv(1), freed.set()), daemon=True).start()
        time.sleep(0.02)
        assert connections.shut(1) == 2
        assert freed.wait(1)
    connections.end()


def test_what_was_open_before_and_what_is_foreign_stays_open(listener):
    with socket.create_server(("127.0.0.1", 0)) as bus:
        port = bus.getsockname()[1]
        # Both ends are in this process: the far end's peer has no telling port.
        foreign_near, foreign_far = set(), set()

        def foreign(peer):
            return peer[1] in foreign_near | foreign_far | {port}

        connections = Connections(foreign)
        with connected(listener) as before:
            connections.begin(1, 2)
            with connected(bus) as reconnected, connected(listener) as ours:
                foreign_far.add(reconnected[0].getsockname()[1])
                assert connections.shut(1) == 2
                connections.end()
                assert is_open(*before)
                assert is_open(*reconnected)
                assert not is_open(*ours)
        with connected(listener) as later:  # listeners are never touched
            assert is_open(*later)


def test_unix_and_datagram_sockets_stay_open():
    connections = Connections()
    connections.begin(1, 2)
    near, far = socket.socketpair()
    with near, far, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram:
        datagram.connect(("127.0.0.1", 9))
        assert connections.shut(1) == 0
        connections.end()
        assert is_open(near, far)


def test_a_pending_connect_is_freed():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:  # the kernel drops further attempts, which then hang
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        connections = Connections()
        connections.begin(1, 2)
        failed = threading.Event()

        def connect():
            with contextlib.suppress(OSError):
                socket.create_connection(full.getsockname(), timeout=30)
            failed.set()

        threading.Thread(target=connect, daemon=True).start()
        assert not failed.wait(0.1)
        assert connections.shut(1) == 1
        assert failed.wait(1)
        connections.end()
        for filler in fillers:
            filler.close()


def test_a_shut_is_never_lost(listener):
    connections = Connections()
    assert connections.shut(3) == 0
    for generation in (1, 3):
        with pytest.raises(GenerationShut):
            connections.begin(generation, 2)
    connections.begin(4, 2)
    connections.check()
    connections.shut(4)
    with pytest.raises(GenerationShut):
        connections.check()
    # What is opened after the shut goes too, until the thread is out.
    with connected(listener) as late:
        time.sleep(0.1)
        assert not is_open(*late)
    connections.end()
    with connected(listener) as unrelated:
        time.sleep(0.05)
        assert is_open(*unrelated)


def test_an_old_shut_does_not_touch_a_newer_generation(listener):
    connections = Connections()
    connections.begin(2, 2)
    with connected(listener) as ours:
        assert connections.shut(1) == 0
        assert is_open(*ours)
    connections.end()


def test_the_sweeping_thread_ends_with_the_generation():
    connections = Connections()
    for generation in range(1, 20):
        connections.begin(generation, 2)
        connections.shut(generation)
        connections.end()
    deadline = time.monotonic() + 2
    while any(thread.name.startswith("shut-") for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_descriptors_used_again_are_not_mistaken(listener):
    connections = Connections()
    with connected(listener) as (old, _):
        number = old.fileno()
        connections.begin(1, 2)
    with connected(listener) as (near, far):
        assert number in (near.fileno(), far.fileno())  # the same number, another socket
        assert connections.shut(1) == 2
    connections.end()


def test_it_leaks_no_descriptor(listener):
    connections = Connections()
    before = len(os.listdir("/proc/self/fd"))
    for generation in range(1, 30):
        connections.begin(generation, 2)
        with connected(listener):
            connections.shut(generation)
        connections.end()
    assert len(os.listdir("/proc/self/fd")) == before


# --- Real members ---

real = pytest.mark.real


def enter(member, crew, rank, dp, *, port=None):
    member.start("do", "regroup", 1, rank, dp, "127.0.0.1", port or crew.port, 30.0)


def freed_and_usable(members, crew):
    """They are free within a second of the shut, and train in the next generation."""
    for member in members:
        member.shut(1)
    for member in members:
        broken(member, 1.0)
    crew.generation = 1
    crew.enter(members)
    iterate(members, MICRO_BATCHES)


@real
def test_members_that_wait_for_one_who_never_comes(crew):
    members = crew.build(2, SMALL)
    for rank, member in enumerate(members):
        enter(member, crew, rank, 3)
    time.sleep(0.2)
    freed_and_usable(members, crew)


@real
@pytest.mark.parametrize("group", [0, 5])
@pytest.mark.parametrize("rank", [0, 2])
def test_members_whose_peer_hangs_while_it_enters(crew, rank, group):
    members = crew.build(3, SMALL)
    members[rank].call("stop_at_group", group)
    for number, member in enumerate(members):
        enter(member, crew, number, 3)
    time.sleep(0.3)
    others = [member for member in members if member is not members[rank]]
    freed_and_usable(others, crew)


@real
def test_a_member_whose_store_is_not_there(crew):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        [member] = crew.build(1, SMALL)
        enter(member, crew, 0, 1, port=unused.getsockname()[1])
        time.sleep(0.1)
        freed_and_usable([member], crew)


@real
def test_a_member_whose_store_hangs(crew):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        [member] = crew.build(1, SMALL)
        enter(member, crew, 0, 1, port=silent.getsockname()[1])
        time.sleep(0.3)
        freed_and_usable([member], crew)


@real
def test_members_in_the_farewell(crew):
    members = crew.build(2, SMALL)
    crew.enter(members)
    members[0].start("do", "farewell", 30.0)
    time.sleep(0.1)
    members[0].shut(1)
    broken(members[0], 1.0)
    together(members, "do", "leave")


@real
def test_members_in_the_middle_of_a_transfer(crew):
    donor, joiner = crew.build(2, SMALL)
    crew.enter([donor, joiner])
    donor.signal(signal.SIGSTOP)
    joiner.start("do", "receive_state", 0)
    time.sleep(0.1)
    joiner.shut(1)
    broken(joiner, 1.0)


@real
def test_a_shut_that_comes_before_the_order_to_enter(crew):
    [member] = crew.build(1, SMALL)
    member.shut(1)
    enter(member, crew, 0, 1)
    freed_and_usable([member], crew)
