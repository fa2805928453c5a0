"""Every sentence about what happens does happen, to whom it says."""

import pytest

from unicron.controlplane.testing import scripted
from unicron.controlplane.testing.scenario import parse
from unicron.controlplane.testing.sentences import SENTENCES

BASE = """nodes n1 to n3 with 2 devices each
task gpt of 200 iterations, 16 micro-batches, at most 6 devices
until 7 s
expect gpt in generation {generation}
"""

#: A line for each sentence: what the trace tells of it, and the generation that the task is in a
#: few seconds later.
LINES = {
    "n2/1 is killed by signal 11 in vote": ("n2/1 is killed by signal 11 in vote", 3),
    "n2/1 exits with code 3": ("n2/1 exits with code 3 in forward", 3),
    "n2/1 raises out_of_memory in reduction": ("n2/1 raises out_of_memory", 3),
    "n2/1 hangs": ("n2/1 hangs in forward", 3),
    "n2/1 hangs in the kernel": ("n2/1 hangs in the kernel, in forward", 2),
    "n2/1 stands still for 500 ms": ("n2/1 stands still for 500 ms in forward", 1),
    "n2/1 is in a declared section for 2 s": ("n2/1 is in a declared section for 2000 ms", 1),
    "n2/1 is slow for 2 s": ("n2/1 is three times as slow for 2000 ms", 1),
    "n2/1 loses its connections in reduction": ("n2/1 loses its connections in reduction", 2),
    "n2/1 can't reach the log for 1 s": ("n2/1 alone can't reach the log for 1000 ms", 1),
    "every worker of gpt raises software in forward": (
        "from now on every worker of gpt raises software in forward",
        2,
    ),
    "n2 loses power": ("node n2 loses power, and its connections close", 2),
    "n2 loses power silently for 500 ms": ("node n2 loses power, silently", 3),
    "n2 can't reach the log for 1 s": ("node n2 can't reach the log for 1000 ms", 3),
    "n2 can't reach the log silently for 1 s": ("node n2 can't reach the log for 1000 ms", 1),
    "beats of n2 get lost for 1 s": ("the beats of n2 get lost for 1000 ms", 1),
    "the first beat of n2 in its life 1 arrives once more": (
        "the first beat of n2 in its life 1 arrives once more",
        1,
    ),
    "the agent of n2 is killed": ("the agent of n2 is killed, its workers live on", 2),
    "the agent of n2 is told to stop for 500 ms": ("the agent of n2 is told to stop", 3),
    "the agent of n2 is started": ("the agent of n2 is started", 3),
    "nothing starts on device 1 of n2": ("nothing starts on device 1 of n2 for good", 1),
    "what starts on n2 runs other software for 3 s": (
        "what starts on n2 runs other software for 3000 ms",
        1,
    ),
    "the store of n2 is killed": ("the store of n2 is killed", 1),
    "an operator gives n2 back": ("an operator asks to give back n2", 1),
    "the log is away for 1 s": ("the log is away for 1000 ms", 1),
    "the last WorkerPrepared of n2/1 is stored again": ("is stored once more", 1),
    "the first TransitionOrdered of gpt is said again": ("is said once more", 1),
    "n2/1 says PeerErrorReported with error=reset": (
        "worker/n2/1 in its life 1 says PeerErrorReported",
        2,
    ),
    "a newer agent on n2 writes an event that isn't known": (
        "a newer agent on n2 writes an event that this version doesn't know",
        1,
    ),
    "the control plane is killed": ("control plane a is killed", 1),
    "the control plane is stopped for 1 s": ("control plane a is stopped for 1000 ms", 1),
    "the control plane can't reach the log for 1 s": (
        "control plane a can't reach the log for 1000 ms",
        1,
    ),
    "a second control plane begins": ("another control plane begins: b", 1),
    "the planner's next answer is late": ("the planner's next answer is late", 1),
    "the planner's next answer is lost": ("the planner's next answer is lost", 1),
    "the planner's next answer is wrong": ("the planner's next answer is wrong", 1),
    "the planner dies at its next answer": ("the planner dies at its next answer", 1),
    "tenant lab may hold 1 device": ("an operator asks to let tenant lab hold 1 device", 1),
    "gpt is submitted once more": ("an operator asks to run gpt once more", 1),
}


def test_there_is_a_line_for_each_sentence():
    assert len(LINES) == len(SENTENCES)


@pytest.mark.parametrize("line", LINES)
def test_it_happens(line):
    told, generation = LINES[line]
    text = BASE.format(generation=generation) + f"at 3 s, {line}"
    report = scripted.run(parse(text, "x.txt"))
    assert report.undone == ()
    assert any("fault" in row and told in row for row in report.golden.splitlines())
    assert report.code == 0, report.wrong()
