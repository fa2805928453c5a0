"""The trainer apart from faults: regrouping, transfers, compatibility patches, its parts."""

import signal
import subprocess
import sys
import time

import pytest

from tests.worker_shim.megatron.conftest import MICRO_BATCHES, small_task
from tests.worker_shim.megatron.crew import Failed, Gone, broken, iterate, together

SMALL = small_task()
CHECKS = "tests.worker_shim.megatron.checks"


def test_importing_the_shim_imports_neither_torch_nor_megatron():
    program = (
        "import sys, unicron.worker_shim, unicron.worker_shim.megatron,"
        " unicron.worker_shim.unblock, unicron.worker_shim.megatron.errors\n"
        "assert not {'torch', 'megatron', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


@pytest.mark.real
def test_every_patch_fires_at_the_places_it_names(crew):
    task = small_task(dropout_ppm=100_000)
    [member] = [crew._fork()]
    member.call("run", f"{CHECKS}:record_patches")
    member.call("build", task)
    member.do("start")
    crew.enter([member])
    iterate([member], MICRO_BATCHES)
    fired = member.call("run", f"{CHECKS}:recorded_patches")
    declared = member.call("run", f"{CHECKS}:declared_patches")
    assert [place for place in declared if place not in fired] == []
    assert {name for name, _ in fired} == {name for name, _ in declared}


@pytest.mark.real
@pytest.mark.parametrize("check", ["held_adds_as_the_tree_says", "tree_sum_reads_only"])
def test_parts_of_the_reduction(crew, check):
    [member] = [crew._fork()]
    member.call("run", f"{CHECKS}:{check}")


@pytest.mark.real
def test_text(crew):
    [member] = [crew._fork()]
    member.call("run", f"{CHECKS}:text_is_a_function_of_its_address", __file__)


@pytest.mark.real
def test_twenty_regroups_leak_nothing(crew):
    members = crew.build(3, SMALL)
    iterate_in_new_generation(crew, members)
    before = together(members, "run", f"{CHECKS}:resources")
    for cycle in range(20):
        if cycle % 2:  # broken off
            for member in members:
                assert member.shut(crew.generation) > 0
        else:
            together(members, "do", "farewell", 5.0)
        together(members, "do", "leave")
        together(members, "do", "leave")
        iterate_in_new_generation(crew, members)
    limit = time.monotonic() + 10.0  # torch's own threads end a moment later; what leaked stays
    while grown(after := together(members, "run", f"{CHECKS}:resources"), before):
        assert time.monotonic() < limit, f"{before} before, {after} after"
        time.sleep(0.05)


def grown(after, before):
    return any(
        mine > then
        for counts, counted in zip(after, before, strict=True)
        for mine, then in zip(counts, counted, strict=True)
    )


def iterate_in_new_generation(crew, members):
    crew.enter(members)
    iterate(members, MICRO_BATCHES)


@pytest.mark.real
def test_a_farewell_waits_for_the_slowest(crew):
    members = crew.build(2, SMALL)
    crew.enter(members)
    members[0].start("do", "farewell", 20.0)
    with pytest.raises(AssertionError, match="no answer"):
        members[0].finish(0.2)
    members[1].do("farewell", 20.0)
    members[0].finish()
    members[0].do("farewell", 1.0)  # once more is harmless
    together(members, "do", "leave")
    crew.enter(members)
    with pytest.raises(Failed) as failure:
        members[0].do("farewell", 0.1)
    assert failure.value.kind == "CollectiveBroken"


@pytest.mark.real
def test_every_group_held_anywhere_is_replaced(crew):
    members = crew.build(2, SMALL)
    for _ in range(2):
        crew.enter(members)
        counts = together(members, "run", f"{CHECKS}:groups_are_current")
        assert min(counts) > 50
        together(members, "do", "leave")
    # Between two generations no group of the last one can be used by mistake.
    with pytest.raises(Failed) as failure:
        members[0].do("compute", [0])
    assert failure.value.kind == "RuntimeError"


@pytest.mark.real
def test_members_start_alike_whatever_their_rank(crew):
    members = crew.build(2, SMALL)
    digests = together(members, "do", "state_digest")
    assert digests[0] == digests[1]
    [other] = crew.build(1, {**SMALL, "seed": 99})
    assert other.do("state_digest") != digests[0]
    looks = [member.look("spec_digest") for member in (*members, other)]
    assert looks[0] == looks[1] != looks[2]


@pytest.mark.real
def test_two_joiners_get_the_state_from_one_donor(crew):
    [donor] = crew.build(1, SMALL)
    crew.enter([donor])
    for _ in range(3):
        iterate([donor], MICRO_BATCHES)
    joiners = crew.build(2, SMALL, start=False)
    crew.switch([donor], [joiners[0], donor, joiners[1]])
    donor.start("do", "send_state", [0, 2])
    for joiner in joiners:
        joiner.start("do", "receive_state", 1)
    sizes = {member.finish() for member in (donor, *joiners)}
    assert len(sizes) == 1
    digests = together([donor, *joiners], "do", "state_digest")
    assert len(set(digests)) == 1
    iterate([joiners[0], donor, joiners[1]], MICRO_BATCHES)


@pytest.mark.real
def test_a_transfer_that_is_damaged_changes_nothing_and_can_be_repeated(crew):
    [donor] = crew.build(1, SMALL)
    crew.enter([donor])
    iterate([donor], MICRO_BATCHES)
    [joiner] = crew.build(1, SMALL, start=False)
    before = joiner.do("state_digest")
    crew.switch([donor], [donor, joiner])
    donor.call("run", f"{CHECKS}:spoil_next_transfer")
    donor.start("do", "send_state", [1])
    with pytest.raises(Failed) as failure:
        joiner.do("receive_state", 0)
    assert failure.value.kind == "TransferRefused"
    donor.finish()
    assert joiner.do("state_digest") == before
    assert joiner.look("has_state", "iteration") == [False, 0]
    donor.start("do", "send_state", [1])
    joiner.do("receive_state", 0)
    donor.finish()
    assert joiner.do("state_digest") == donor.do("state_digest")


@pytest.mark.real
def test_the_state_of_another_model_is_refused(crew):
    [donor] = crew.build(1, SMALL)
    [joiner] = crew.build(1, small_task(hidden_size=32), start=False)
    crew.enter([donor, joiner])
    donor.start("do", "send_state", [1])
    with pytest.raises(Failed) as failure:
        joiner.do("receive_state", 0)
    assert failure.value.kind == "TransferRefused"
    donor.shut(crew.generation)
    broken(donor)


@pytest.mark.real
@pytest.mark.parametrize("victim", ["donor", "joiner"])
def test_a_death_in_a_transfer_leaves_the_other_whole(crew, victim):
    [donor] = crew.build(1, SMALL)
    crew.enter([donor])
    iterate([donor], MICRO_BATCHES)
    [joiner] = crew.build(1, SMALL, start=False)
    crew.switch([donor], [donor, joiner])
    dying, other = (donor, joiner) if victim == "donor" else (joiner, donor)
    before = other.do("state_digest")
    if victim == "donor":
        donor.call("kill_at_send", 1)  # the header has gone
        joiner.start("do", "receive_state", 0)
    else:
        joiner.signal(signal.SIGKILL)
    donor.start("do", "send_state", [1])
    with pytest.raises(Gone):
        dying.finish()
    broken(other)
    assert other.do("state_digest") == before
    assert other.look("has_state") is (victim == "joiner")


@pytest.mark.real
def test_the_state_of_one_who_kept_micro_batches_replaces_them(crew):
    members = crew.build(2, SMALL)
    crew.enter(members)
    members[1].do("compute", [0, 1])
    members[0].start("do", "send_state", [1])
    members[1].do("receive_state", 0)
    members[0].finish()
    assert members[1].look("kept") == []


@pytest.mark.real
@pytest.mark.parametrize(
    "change,word",
    [
        ({"tensor_parallel": 2}, "TP"),
        ({"model": {**SMALL["model"], "vocab_size": 100}}, "vocabulary"),
        ({"data": "/nowhere/at/all"}, "nowhere"),
    ],
)
def test_a_task_it_cannot_train_is_refused(crew, change, word):
    with pytest.raises(Failed, match=word):
        crew.build(1, {**SMALL, **change})


@pytest.mark.real
def test_a_wrong_assignment_is_refused_before_any_message(crew):
    [member] = crew.build(1, SMALL)
    crew.enter([member])
    member.do("compute", [0, 1])
    with pytest.raises(Failed) as failure:
        member.do("reduce", [[0, 1, 2]])
    assert failure.value.kind == "ValueError"
    for method, *arguments in (("vote", 0), ("step",)):
        with pytest.raises(Failed) as failure:
            member.do(method, *arguments)
        assert failure.value.kind == "RuntimeError"
    assert member.look("kept") == [0, 1]
