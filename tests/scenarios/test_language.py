"""What is read out of a scenario, and what is said about one that can't be read."""

import pytest

from unicron.controlplane.testing.moments import MOMENTS
from unicron.controlplane.testing.scenario import SETTINGS, ScenarioError, parse
from unicron.controlplane.testing.sentences import SENTENCES
from unicron.controlplane.testing.words import Form, Names, Problem

HEAD = """# a title
node n1 with 2 devices
node n2 with 4 devices from 3 s
task gpt of 60 iterations, 8 micro-batches, at least 2 devices, at most 5 devices, weight 50 percent
"""


def read(*lines):
    return parse("\n".join([HEAD, *lines, "expect gpt completed"]), "x.txt")


def test_what_there_is():
    scenario = read("until 30 s", "the clock of n2 is 2 min behind", "seed 7")
    assert scenario.title == "a title"
    nodes = [(n.name, n.devices, n.at_ms) for n in scenario.options.nodes]
    assert nodes == [("n1", 2, 0), ("n2", 4, 3000)]
    spec = scenario.options.tasks[0].spec
    assert (spec.task, spec.iterations, spec.micro_batches) == ("gpt", 60, 8)
    assert (spec.min_devices, spec.max_devices, spec.weight_milli) == (2, 5, 500)
    assert (scenario.limit_ms, scenario.to_the_end) == (30_000, False)
    assert (scenario.ahead_ms, scenario.options.seed) == ({"n2": -120_000}, 7)


def test_nothing_is_left_to_chance_unless_said():
    still = read().options
    assert (still.weather.spread_percent, still.weather.loss_permille) == (0, 0)
    assert still.pace.spread_percent == 0
    loose = read("durations vary by 10 percent", "of 1000 messages 5 get lost").options
    assert (loose.pace.spread_percent, loose.weather.loss_permille) == (10, 5)


def test_what_happens_and_when():
    happenings = read(
        "until 3 min",
        "at 1.5 s, n1/1 is killed by signal 9 in vote",
        "at 2 min n2 loses power silently for 300 ms",
        "2 s after the 3rd GenerationClosed of gpt, the control plane is killed at its 4th effect",
        "after 12 iterations of gpt, n2/3 hangs",
    ).happenings
    first, second, third, fourth = (h.fault for h in happenings)
    assert (first.kind, first.target, first.pick, first.detail) == ("signal", "n1/1", 9, "@vote")
    assert (second.at_ms, second.detail, second.for_ms) == (120_000, "silent", 300)
    assert third.pick == 4
    after = happenings[2].after
    assert (after.event, after.name, after.nth, after.after_ms) == (
        "GenerationClosed",
        "gpt",
        3,
        2000,
    )
    assert (fourth.kind, happenings[3].after.iterations) == ("hang", 12)


def test_a_sentence_about_a_node_and_one_about_a_worker_may_be_alike():
    happenings = read(
        "at 1 s, n1 can't reach the log for 2 s", "at 1 s, n1/1 can't reach the log for 2 s"
    ).happenings
    assert [h.fault.kind for h in happenings] == ["cut", "cut-worker"]


def test_several_nodes_at_once():
    text = (
        "nodes a2 to a4 with 1 device each\ntask t of 1 iterations, 1 micro-batches\nexpect t idle"
    )
    assert [n.name for n in parse(text, "x.txt").options.nodes] == ["a2", "a3", "a4"]


@pytest.mark.parametrize(
    "line, what, fix",
    [
        ("at 5 s, n3 loses power", "there is no node 'n3'", "there are: n1, n2"),
        ("at 5 s, n1/2 hangs", "no worker n1/2: n1 has 2 device(s)", "n1/0 to n1/1"),
        ("at 5 s, n1 hangs", "'n1' is no worker", "node/device, as in n1/0"),
        ("at 5 s, n1/1 is killd by signal 9", "can't happen here", "WORKER is killed by signal"),
        ("at 5 s, n1/1 hangs in fowrard", "no phase 'fowrard'", "the phases are: build"),
        ("at soon, n1/1 hangs", "isn't understood", "at TIME[,] SENTENCE"),
        ("at 0.0005 s, n1/1 hangs", "no whole number of milliseconds", "three decimals"),
        ("after NodeLst of n1, n1/1 hangs", "no event 'NodeLst'", "did you mean NodeLost?"),
        ("after the last NodeLost, n1/1 hangs", "nobody knows which", "the first, the 2nd"),
        ("node n1 with 1 device", "n1 is declared twice", "a name of its own"),
        ("node 3 with 1 device", "'3' can't be a name", "begin with a letter"),
        ("node n9 with 0 devices", "can't have 0 devices", "1 to 64"),
        ("nodes n5 to n4 with 1 device each", "leads nowhere", "nodes n1 to n4"),
        ("nod n3 with 1 device", "isn't understood", "node NAME with NUMBER device(s)"),
        ("nodes a to c with 1 device each", "count from a to c", "end both in a number"),
        ("nodes m1 to m300000 with 1 device each", "300002 nodes", "1 to 64"),
        ("task b of 0 iterations, 1 micro-batches", "0 iterations", "1 to 10000"),
        ("task b of 10001 iterations, 1 micro-batches", "10001 iterations", "1 to 10000"),
        ("task b of 1 iterations, 2000 micro-batches", "2000 micro-batches", "1 to 1024"),
        ("task b of -3 iterations, 1 micro-batches", "-3 is below 0", "without a sign"),
        ("until 61 min", "can't take so long", "60 min"),
        ("n1/1 hangs", "isn't said when", "say when: at TIME, n1/1 hangs"),
        ("n9/1 hangs", "there is no node 'n9'", "there are: n1, n2"),
        ("2 s befor NodeLost, n1/1 hangs", "still to come", "TIME after EVENT"),
        ("except gpt completed", "isn't understood", "did you mean 'expect' instead of 'except'?"),
        ("expect NodeLost befor NodeAdmitted", "can't be expected", "did you mean 'before'"),
        ("at 1 s, n1/1 hagns", "can't happen here", "did you mean 'hangs' instead of 'hagns'?"),
        ("at 7 sec, n1/1 hangs", "'7 sec' is no time", "300 ms, 1.5 s or 2 min"),
        ("at 7, n1/1 hangs", "'7' is no time", "300 ms, 1.5 s or 2 min"),
        ("at 7 s, n1 loses power for 3", "'3' is no time", "300 ms, 1.5 s or 2 min"),
        ("expect NodeLost within 2 minutes after the first fault", "'2 minutes' is no", "2 min"),
        ("at 120 s, n1/1 hangs", "the run is over at 120 s", "a limit above 120 s after until"),
        ("node n3 with 1 device from 200 s", "too late", "a limit above 200 s"),
        ("trace only NodeLost, Foo", "no event 'Foo'", "there are: "),
        ("expect gtp completed", "no node, worker or task 'gtp'", "did you mean gpt?"),
        ("expect gpt happy", "no task is ever 'happy'", "idle, ordered, running"),
        ("expect n1 running", "no node is ever 'running'", "joining, healthy"),
        ("expect lots and lots of NodeLost", "can't be expected", "expect [COUNT] EVENT"),
        ("expect 2 NodeLose", "no event 'NodeLose'", "did you mean NodeLost?"),
        ("at 1 s, the last NodeLost is stored again", "is a decision", "is said again"),
        ("at 1 s, the last WorkerExited is said again", "is a fact", "is stored again"),
        ("at 1 s, n1/0 says NodeLost", "no agent or worker says NodeLost", "WorkerExited"),
        ("at 1 s, n1/0 says WorkerExited with code=1", "gives no field", "exit_code"),
        ("at 1 s, n1/0 says WorkerExited with exit_code=x", "Expected `int | null`", "JSON"),
    ],
)
def test_a_line_that_cannot_be_read(line, what, fix):
    with pytest.raises(ScenarioError) as caught:
        read("seed 1", line)
    error = caught.value
    assert error.what.startswith("x.txt:7: ")
    assert what in error.what
    assert error.why == f"the line is: {line}"
    assert fix in error.fix
    assert error.code == "E-SCENARIO"


def test_what_comes_after_the_end_is_refused_wherever_the_end_is_given():
    for until in ("until 30 s", "until everything has ended within 30 s"):
        assert read("at 29 s, n1/1 hangs", until).happenings
        with pytest.raises(ScenarioError, match=r"x\.txt:6: .* is over at 30 s"):
            read("at 30 s, n1/1 hangs", until)


def test_there_are_no_more_nodes_and_tasks_than_a_run_gets_through():
    with pytest.raises(ScenarioError, match="can't have 65 nodes"):
        read(*(f"node m{number} with 1 device" for number in range(63)))
    with pytest.raises(ScenarioError, match="can't have 17 tasks"):
        read(*(f"task t{number} of 1 iterations, 1 micro-batches" for number in range(16)))


@pytest.mark.parametrize(
    "text, what",
    [
        ("task t of 1 iterations, 1 micro-batches\nexpect t idle", "no node"),
        ("node n1 with 1 device\nexpect n1 healthy", "no task"),
        ("node n1 with 1 device\ntask t of 1 iterations, 1 micro-batches", "nothing expected"),
    ],
)
def test_something_is_missing(text, what):
    with pytest.raises(ScenarioError, match=rf"x\.txt: there is {what} in it"):
        parse(text, "x.txt")


def test_the_fixes_about_what_is_missing_can_be_read():
    lines = ["node n1 with 2 devices", "task gpt of 40 iterations, 8 micro-batches"]
    assert parse("\n".join([*lines, "expect gpt completed"]), "x.txt").expectations


def test_names_that_are_used_before_they_are_declared():
    with pytest.raises(ScenarioError) as caught:
        parse("at 1 s, n1 loses power\nnode n1 with 1 device", "x.txt")
    assert caught.value.what == "x.txt:1: there is no node 'n1'"
    assert "node n1 with 2 devices" in caught.value.fix


def test_no_two_forms_read_the_same_shape():
    shapes = [form.shape for form, _ in (*SETTINGS, *SENTENCES)] + [f.shape for f in MOMENTS]
    assert len(shapes) == len(set(shapes))


def test_a_form_reads_what_stands_in_its_places():
    form = Form("{node} has {number} device(s)[ for {time}]", "")
    names = Names(nodes={"n1": 2})
    assert form.shape == "NODE has NUMBER device(s) [for TIME]"
    assert form.read("n1 has 1 device", names) == {"node": "n1", "number": 1, "time": None}
    assert form.read("n1 has 3 devices for 2 s", names) == {"node": "n1", "number": 3, "time": 2000}
    assert form.read("n1 has 3 devices for", names) is None
    with pytest.raises(Problem):
        form.read("n2 has 3 devices", names)
