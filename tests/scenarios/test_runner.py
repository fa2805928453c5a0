"""What a run of a scenario is judged by: each kind of expectation, failure and difference."""

import msgspec
import pytest

from unicron.controlplane.replay.divergence import Divergence
from unicron.controlplane.testing import exact, scripted
from unicron.controlplane.testing.scenario import CUT, parse

KILL = """# one is killed
node n1 with 2 devices
node n2 with 1 device
task gpt of 40 iterations, 6 micro-batches, at most 3 devices
at 4 s, n1/1 is killed by signal 9
trace only decisions
"""


def run(*lines, head=KILL):
    return scripted.run(parse("\n".join([head, *lines]), "x.txt"))


@pytest.fixture(scope="module")
def killed():
    """A report, and the means to judge other expectations by the same run."""
    report = run("expect gpt completed")

    def judge(*expectations):
        lines = "\n".join(f"expect {e}" for e in expectations)
        simulation = KILL + lines
        return scripted.run(parse(simulation, "x.txt"))

    assert report.code == 0, report.wrong()
    judge.report = report
    return judge


TRUE = (
    "gpt completed",
    "n1 healthy",
    "n1/1 exited",
    "1 incident",
    "1 incident of severity 2 about n1/1",
    "1 incident about gpt",
    "no incidents about n2",
    "1 incident opened with severity 2",
    "NodeAdmitted",
    "2 NodeAdmitted",
    "at least 1 NodeAdmitted of n1",
    "at most 2 NodeAdmitted",
    "no NodeLost",
    'WorkerExited of n1/1 saying "signal:9"',
    "GenerationClosed of gpt within 100 ms after the first fault",
    "GenerationClosed after the last fault",
    "no GenerationClosed before WorkerExited of n1/1",
    "3 MemberReady of gpt before WorkerExited",
    "TransitionOrdered of gpt within 2 s after GenerationClosed of gpt",
    "n1/1 starts 2 times",
    "n1/0 lives through it",
    "gpt in generation 3",
    "gpt on 2 devices in generation 2",
    "ranks of gpt in generation 1 are n1/0, n2/0, n1/1",
    "no repeated events",
    "no void events",
)

FALSE = {
    "gpt failed": "it is completed",
    "n2/0 member": "it is exited",
    "2 incidents": "1 such; in all: inc-",
    "an incident of severity 1": "0 such; in all: inc-",
    "an incident opened with severity 1": "0 such; opened with severities [2]",
    "NodeLost of n2": "found none",
    "1 NodeAdmitted": "found 2: #",
    "no GenerationClosed after the first fault": "found 1: #",
    "GenerationClosed within 1 s after the 2nd fault": "only 1 fault(s) were done",
    "GenerationClosed after NodeLost of n2": "there was no NodeLost of n2 at all",
    "TaskCompleted within 1 s after the first fault": "found none (elsewhere 1: #",
    "n1/1 starts 1 time": "it was started 2 time(s)",
    "n1/1 lives through it": "it was started 2 time(s)",
    "gpt in generation 2": "its last generation is 3",
    "gpt on 3 devices in generation 2": "it had 2 device(s)",
    "gpt on 3 devices in generation 9": "there was no such generation",
    "ranks of gpt in generation 1 are n1/0, n1/1, n2/0": "they were n1/0, n2/0, n1/1",
    "ranks of gpt in generation 9 are n1/0": "there was no such generation",
    'gpt failed because "fault"': "it is completed",
    "1 repeated event": "0: none",
    "2 void events": "0: none",
}


def test_what_is_so(killed):
    report = killed(*TRUE)
    assert [f.text for f in report.findings] == list(TRUE)
    assert report.unmet() == []


def test_what_is_otherwise_is_said(killed):
    report = killed(*FALSE)
    assert report.code == 1
    first = KILL.count("\n") + 1
    for number, (finding, (text, found)) in enumerate(
        zip(report.findings, FALSE.items(), strict=True)
    ):
        assert (finding.line, finding.text) == (first + number, text)
        assert finding.found.startswith(found), (text, finding.found)
    assert report.wrong()[0] == f"x.txt:{first}: expected gpt failed: it is completed"


def test_the_same_text_gives_the_same_run(killed):
    again = run("expect gpt completed")
    assert again.golden == killed.report.golden
    assert again.outcome.digest == killed.report.outcome.digest


def test_what_found_nothing_to_be_done_to_is_told():
    report = run("at 4.02 s, n1/1 hangs in voted", "expect 1 incident")
    assert report.code == 1
    assert report.failures() == ["x.txt:8: there was nothing to do it to: n1/1 hangs in voted"]


def test_a_task_that_never_ends_is_stuck():
    report = run("at 5 s, n1 loses power", "at 5 s, n2 loses power", "expect 1 incident")
    assert report.code == 11
    (stuck,) = report.failures()
    assert stuck.startswith("stuck at 120.0 s: gpt is ")
    assert "; open incidents: inc-" in stuck
    assert stuck.endswith("; n1 is healthy; n2 is healthy; no decision is due")


def test_a_run_that_waits_for_the_planner_says_so():
    report = run(
        "at 0 s, the planner's next answer is lost",
        "until everything has ended within 5 s",
        "expect no PlanSolved",
        head=KILL,
    )
    assert report.code == 11
    assert "; no incident is open; " in report.failures()[0]
    assert "; the planner hasn't answered #" in report.failures()[0]


def test_why_a_task_failed_is_said_where_another_end_was_expected():
    report = run("at 0 s, every worker of gpt raises software in forward", "expect gpt completed")
    (unmet,) = report.unmet()
    assert "expected gpt completed: it is failed, because: software in n" in unmet
    assert unmet.endswith("the task itself is at fault")
    line = next(row for row in report.golden.splitlines() if "TaskFailed" in row)
    assert "gpt failed: software in n" in line
    assert line.split()[-2].startswith("g")


def test_a_violated_invariant(monkeypatch):
    def plant(sim, fault):
        sim.complain("planted", "on purpose")
        return "planted"

    monkeypatch.setitem(exact.KINDS, "signal", plant)
    report = run("expect gpt completed")
    assert report.code == 10
    assert report.failures()[0].startswith("invariant planted at #")


def test_a_replay_that_differs(monkeypatch):
    found = Divergence(seq=7, what="state", message="digests differ")

    class Other(scripted.Replayer):
        def verify(self, until=None):
            return msgspec.structs.replace(super().verify(until), divergence=found)

    monkeypatch.setattr(scripted, "Replayer", Other)
    report = run("expect gpt completed")
    assert report.code == 12
    assert report.failures() == ["a replay of the log differs at #7: digests differ"]


# --- The trace ------------------------------------------------------------------------------------


def test_the_trace_shows_what_is_asked_for():
    report = run("expect gpt completed")
    events = {line[28:54].strip() for line in report.golden.splitlines()[1:-1]}
    assert "GenerationClosed" in events
    assert not events & {"MemberReady", "WorkerExited", "ConnectionOpened"}
    assert "n1/1 is killed by signal 9" in report.golden
    leads = next(row for row in report.golden.splitlines() if "LeadershipTaken" in row)
    assert leads.split()[1] == "control/a#1"
    last = report.golden.splitlines()[-1]
    assert last.startswith(f"digest {report.outcome.digest[:16]} over all ")


def test_a_trace_that_was_kept_is_compared():
    kept = run("expect gpt completed").text
    assert scripted.run(parse(kept, "x.txt")).code == 0
    script, golden = kept.split(f"\n{CUT}\n")
    lines = golden.splitlines()
    line = next(n for n, text in enumerate(lines) if "GenerationClosed" in text)
    lines[line] = lines[line].replace("gpt closed", "gpt broken")
    report = scripted.run(parse("\n".join([script, CUT, *lines, ""]), "x.txt"))
    assert (report.held, report.code) == (True, 1)
    head, *difference = report.difference()
    assert head == f"first difference in line {script.count(chr(10)) + 3 + line} of x.txt"
    assert sum(text.startswith("-  ") and "gpt broken" in text for text in difference) == 1
    assert sum(text.startswith("+  ") and "gpt closed" in text for text in difference) == 1


def test_only_the_digest_differs():
    kept = run("expect gpt completed").text
    text = kept.replace("\ndigest ", "\ndigest 0")
    head = scripted.run(parse(text, "x.txt")).difference()[0]
    assert head == "only the digest differs: the same events at the same times, with other content"


def test_a_long_difference_is_cut_short():
    kept = run(
        "trace without LeadershipTaken", "expect gpt completed", head=KILL[: KILL.index("trace")]
    ).text
    script, golden = kept.split(f"\n{CUT}\n")
    other = "\n".join(line.replace("gpt", "opt") for line in golden.splitlines())
    difference = scripted.run(parse(f"{script}\n{CUT}\n{other}\n", "x.txt")).difference()
    assert difference[-1].endswith(" more lines")
    assert len(difference) < 50
