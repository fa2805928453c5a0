"""Guarantee 6: "parameters are bit-identical to a run without failures, at any DP"."""

import signal

import pytest

from tests.worker_shim.megatron.conftest import MICRO_BATCHES, small_task
from tests.worker_shim.megatron.crew import (
    Failed,
    Gone,
    abandon,
    broken,
    iterate,
    together,
)
from unicron.events.gradient_tree import assign

pytestmark = pytest.mark.real

TASKS = {
    "float32": small_task(),
    "dropout": small_task(dropout_ppm=100_000),
    "bfloat16": small_task(bf16=True),
}


def begin(crew, task, count=4, iterations=0):
    members = crew.build(count, task)
    crew.enter(members)
    return members, [iterate(members, MICRO_BATCHES) for _ in range(iterations)]


def kept_by(members):
    return {rank: member.look("kept") for rank, member in enumerate(members)}


def finish_iteration(members, kept=None):
    """From wherever they are before the reduction: compute what is owed, reduce, vote, step."""
    shares = assign(MICRO_BATCHES, len(members), kept or {})
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
        member.start("do", "reduce", shares)
        member.start("do", "vote", 0)
    for member in members:
        for _ in range(3):
            member.finish()
    return step(members)


def step(members):
    losses = together(members, "do", "step")
    digests = together(members, "do", "state_digest")
    assert len(set(digests)) == len(set(losses)) == 1
    return digests[0], losses[0].hex()


@pytest.mark.parametrize("kind", TASKS)
def test_a_run_through_four_sizes_is_bit_identical(crew, reference, kind):
    expected = reference(TASKS[kind])
    members, history = begin(crew, TASKS[kind], iterations=2)

    # Iteration 2: W3 dies on the way into its second micro-batch; the others finish their three.
    shares = assign(MICRO_BATCHES, 4)
    members[3].call("stop_at", "kill", "forward", 1)
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
    with pytest.raises(Gone):
        members[3].finish()
    survivors = members[:3]
    for member in survivors:
        member.finish()
        member.start("do", "reduce", shares)
    abandon(survivors, crew.generation)
    kept = kept_by(survivors)
    assert {rank: tuple(leaves) for rank, leaves in kept.items()} == dict(enumerate(shares[:3]))
    forwards = forward_passes(survivors)

    # DP 3: they keep what they have and share the three that are missing.
    crew.enter(survivors)
    history.append(finish_iteration(survivors, kept))
    assert forward_passes(survivors) - forwards == MICRO_BATCHES - 9
    history.append(iterate(survivors, MICRO_BATCHES))

    # DP 4: a new process gets the state from one of them.
    [joiner] = crew.build(1, TASKS[kind], start=False)
    assert not joiner.look("has_state")
    members = [*survivors, joiner]
    crew.switch(survivors, members)
    survivors[0].start("do", "send_state", [3])
    received = joiner.do("receive_state", 0)
    assert survivors[0].finish() == received > 12 * joiner.call("parameters")
    assert joiner.look("iteration", "has_state") == [4, True]
    history += [iterate(members, MICRO_BATCHES) for _ in range(2)]

    # DP 2: a planned shrink.
    crew.switch(members, [members[3], members[1]])
    history += [iterate([members[3], members[1]], MICRO_BATCHES) for _ in range(2)]

    assert history == expected


def forward_passes(members):
    return sum(together(members, "forward_passes"))


def test_two_deaths_in_one_iteration(crew, reference):
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, iterations=1)
    shares = assign(MICRO_BATCHES, 4)
    members[3].call("stop_at", "kill", "backward", 1)
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
    with pytest.raises(Gone):
        members[3].finish()
    survivors = members[:3]
    for member in survivors:
        member.finish()
        member.start("do", "reduce", shares)
    abandon(survivors, crew.generation)
    crew.enter(survivors)

    # Rank 0 dies too while it computes what it owes.
    shares = assign(MICRO_BATCHES, 3, kept_by(survivors))
    survivors[0].call("stop_at", "kill", "forward")
    for member, share in zip(survivors, shares, strict=True):
        member.start("do", "compute", share)
    with pytest.raises(Gone):
        survivors[0].finish()
    survivors = survivors[1:]
    for member in survivors:
        member.finish()
        member.start("do", "reduce", shares)
    abandon(survivors, crew.generation)
    kept = kept_by(survivors)
    assert [len(leaves) for leaves in kept.values()] == [4, 4]
    crew.enter(survivors)
    history.append(finish_iteration(survivors, kept))
    history.append(iterate(survivors, MICRO_BATCHES))
    assert history == expected[:3]


def test_any_assignment_gives_the_same_bits(crew, reference):
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, count=3)
    for shares in (
        [(11, 0, 5), (1, 2, 3, 4, 7, 10), (6, 9, 8)],  # in this order
        [(), tuple(range(12)), ()],
        [tuple(range(0, 12, 2)), (), tuple(range(11, 0, -2))],
    ):
        for member, share in zip(members, shares, strict=True):
            member.do("compute", share)
        together(members, "do", "reduce", shares)
        together(members, "do", "vote", 0)
        history.append(step(members))
    assert history == expected[:3]


@pytest.mark.parametrize("sends", [0, 2, 5])
def test_a_reduction_that_broke_in_the_exchange_is_done_again(crew, reference, sends):
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, iterations=1)
    shares = assign(MICRO_BATCHES, 4)
    for member, share in zip(members, shares, strict=True):
        member.do("compute", share)
    members[2].call("kill_at_send", sends)
    for member in members:
        member.start("do", "reduce", shares)
    with pytest.raises(Gone):
        members[2].finish()
    survivors = [members[0], members[1], members[3]]
    abandon(survivors, crew.generation)
    kept = kept_by(survivors)
    assert all(len(leaves) == 3 for leaves in kept.values())
    crew.enter(survivors)
    history.append(finish_iteration(survivors, kept))
    history.append(iterate(survivors, MICRO_BATCHES))
    assert history == expected[:3]


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_after_the_vote_survivors_step_forward_without_any_group(crew, reference, kind):
    task = TASKS[kind]
    expected = reference(task)
    members, history = begin(crew, task, iterations=1)
    shares = assign(MICRO_BATCHES, 4)
    members[0].call("stop_at", "kill", "voted")
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
        member.start("do", "reduce", shares)
        member.start("do", "vote", 7)
    survivors = members[1:]
    for member in survivors:
        assert [member.finish() for _ in range(3)] == [None, None, 7]
        assert member.look("reduced", "voted", "iteration") == [True, True, 1]
    for _ in range(2):
        members[0].finish()
    with pytest.raises(Gone):
        members[0].finish()

    for member in survivors:  # nobody is in a collective, yet its sockets go
        assert member.shut(crew.generation) > 0
    together(survivors, "do", "leave")
    assert survivors[0].look("generation") is None
    history.append(step(survivors))
    crew.enter(survivors)
    history.append(iterate(survivors, MICRO_BATCHES))
    assert history == expected[:3]


def test_the_reduced_gradient_survives_a_new_generation(crew, reference):
    """One died in the vote: the others have the reduced gradient but not the vote. They may as
    well vote on it again, in the next generation, or reduce again."""
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, iterations=1)
    shares = assign(MICRO_BATCHES, 4)
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
        member.start("do", "reduce", shares)
    for member in members:
        member.finish()
        member.finish()
    members[1].call("stop_at", "kill", "vote")
    for member in members:
        member.start("do", "vote", 0)
    with pytest.raises(Gone):
        members[1].finish()
    survivors = [members[0], members[2], members[3]]
    abandon(survivors, crew.generation)
    assert all(member.look("reduced", "voted") == [True, False] for member in survivors)
    crew.enter(survivors)
    assert together(survivors, "do", "vote", 5) == [5, 5, 5]
    history.append(step(survivors))
    history.append(iterate(survivors, MICRO_BATCHES))
    assert history == expected[:3]


def test_a_finished_reduction_can_be_done_again_by_others(crew, reference):
    """The order may say so although some have the reduced gradient: it comes out the same."""
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, iterations=1)
    shares = assign(MICRO_BATCHES, 4)
    for member, share in zip(members, shares, strict=True):
        member.do("compute", share)
    together(members, "do", "reduce", shares)
    kept = kept_by(members[:3])
    members[3].kill()
    together(members[:3], "do", "leave")
    crew.enter(members[:3])
    assert members[0].look("reduced") is True
    history.append(finish_iteration(members[:3], kept))
    assert history == expected[:2]


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_an_interrupt_between_micro_batches_keeps_the_finished_ones(crew, reference, phase):
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, iterations=1)
    shares = assign(MICRO_BATCHES, 4)
    members[1].call("stop_at", "interrupt", phase, 2)
    with pytest.raises(Failed) as failure:
        members[1].do("compute", shares[1])
    assert failure.value.kind == "Interrupted"
    assert members[1].look("kept") == list(shares[1][:2])
    for rank in (0, 2, 3):
        members[rank].do("compute", shares[rank])
    members[1].do("compute", shares[1])  # goes on with the third
    history.append(finish_iteration(members))
    assert history == expected[:2]


@pytest.mark.parametrize("phase", ["reduction", "vote", "voted", "step", "committed"])
def test_an_interrupt_at_a_phase_leaves_a_whole_trainer(crew, reference, phase):
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, count=1, iterations=1)
    [member] = members
    shares = assign(MICRO_BATCHES, 1)
    member.do("compute", shares[0])
    member.call("stop_at", "interrupt", phase)
    raised = []
    for command, *arguments in (("reduce", shares), ("vote", 0), ("step",)):
        try:
            member.do(command, *arguments)
        except Failed as failure:
            raised.append(failure.kind)
            if phase not in ("voted", "committed"):  # then it was done already
                member.do(command, *arguments)
    assert raised == ["Interrupted"]
    assert member.look("iteration") == 2
    history.append((member.do("state_digest"), expected[1][1]))
    assert history == expected[:2]


def test_control_the_stock_reduction_depends_on_the_number_of_members(crew, forker):
    """What the tree is for: with Megatron's own all-reduce the same iteration differs."""
    task = TASKS["float32"]
    digests = {}
    for count in (4, 3):
        members, _ = begin(crew, task, count=count)
        together(members, "stock_reduction")
        digests[count] = [iterate(members, MICRO_BATCHES)[0] for _ in range(2)]
    assert digests[4] != digests[3]


def test_a_member_whose_gradient_differs_is_found_before_anyone_steps(crew):
    members, _ = begin(crew, TASKS["float32"], count=3)
    shares = assign(MICRO_BATCHES, 3)
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
        member.start("do", "reduce", shares)
    for member in members:
        member.finish()
        member.finish()
    members[1].call("flip_a_bit")
    for member in members:
        member.start("do", "vote", 0)
    for member in members:
        with pytest.raises(Failed) as failure:
            member.finish()
        assert failure.value.kind == "DivergenceError"
        assert member.look("iteration", "voted") == [0, False]


def test_a_hung_peer_is_left_behind(crew, reference):
    """SIGSTOP instead of death: nothing closes by itself, the shut frees everyone."""
    task = TASKS["float32"]
    expected = reference(task)
    members, history = begin(crew, task, iterations=1)
    shares = assign(MICRO_BATCHES, 4)
    members[1].call("stop_at", "stop", "reduction")
    for member, share in zip(members, shares, strict=True):
        member.start("do", "compute", share)
        member.start("do", "reduce", shares)
    survivors = [members[0], members[2], members[3]]
    for member in (*survivors, members[1]):
        member.finish()
    with pytest.raises(AssertionError, match="no answer"):
        survivors[0].finish(0.3)
    abandon(survivors, crew.generation)
    kept = kept_by(survivors)
    crew.enter(survivors)
    history.append(finish_iteration(survivors, kept))

    # The one that was stopped goes on: it meets closed connections and disturbs nobody.
    members[1].signal(signal.SIGCONT)
    broken(members[1])
    history.append(iterate(survivors, MICRO_BATCHES))
    assert history == expected[:3]
