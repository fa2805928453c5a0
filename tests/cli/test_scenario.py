from pathlib import Path

import pytest

TEXT = """# one is killed
node n1 with 2 devices
task gpt of 20 iterations, 4 micro-batches, at most 2 devices
at 3 s, n1/1 is killed by signal 9
trace only IncidentOpened
expect gpt completed
expect n1/1 starts 2 times
"""


@pytest.fixture
def file(cli):
    def make(text, name="a.txt"):
        Path(name).write_text(text, encoding="utf-8")
        return name

    return make


def test_trace_expectations_and_verdict(cli, file):
    done = cli("scenario", file(TEXT))
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert lines[0].startswith("time      who ")
    assert "n1/1 is killed by signal 9" in lines[1]
    assert "IncidentOpened" in lines[2]
    assert lines[3].startswith("digest ")
    assert lines[5:7] == ["+ gpt completed", "+ n1/1 starts 2 times"]
    assert lines[-1].startswith("+ holds  a.txt: ")
    assert lines[-1].endswith("it has no trace yet, keep this one with --write")


def test_write_and_compare(cli, file):
    name = file(TEXT)
    assert cli("scenario", name, "--write").exit_code == 0
    kept = Path(name).read_text(encoding="utf-8")
    assert kept.startswith(TEXT.rstrip("\n"))
    assert "\n----\ntime " in kept
    assert cli("scenario", name).exit_code == 0
    file(kept.replace("IncidentOpened  ", "IncidentOpenned "))
    done = cli("scenario", name)
    assert done.exit_code == 1
    assert "first difference in line 11 of a.txt" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("keep it with --write")


def test_nothing_is_written_unless_the_rest_holds(cli, file):
    name = file(TEXT.replace("2 times", "3 times"))
    done = cli("scenario", name, "--write")
    assert done.exit_code == 1
    assert "x n1/1 starts 3 times: it was started 2 time(s)" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("; not written: an expectation isn't met")
    assert "----" not in Path(name).read_text(encoding="utf-8")
    stuck = file(TEXT.replace("at 3 s", "until everything has ended within 4 s\nat 3 s"))
    done = cli("scenario", stuck, "--write")
    assert done.exit_code == 11
    assert done.stdout.splitlines()[-1].endswith("; not written: the run failed")


def test_only_another_trace_differs(cli, file):
    name = file(TEXT)
    cli("scenario", name, "--write")
    kept = Path(name).read_text(encoding="utf-8")
    file(kept.replace("2 times", "3 times"))
    assert cli("scenario", name).stdout.splitlines()[-1].startswith("x fails  a.txt")
    file(kept.replace("\ndigest ", "\ndigest 0"))
    assert cli("scenario", name).stdout.splitlines()[-1].startswith("x differs  a.txt")


def test_many_files_give_a_line_each_and_the_worst_code(cli, file):
    stuck = TEXT.replace(
        "at 3 s", "until everything has ended within 9 s\nat 3 s, n1 loses power\nat 4 s"
    )
    names = [
        file(TEXT),
        file(TEXT.replace("2 times", "3 times"), "b.txt"),
        file(stuck.replace("at 4 s, n1/1 is killed by signal 9\n", ""), "c.txt"),
    ]
    done = cli("scenario", *names)
    assert done.exit_code == 11
    lines = done.stdout.splitlines()
    assert lines[0].startswith("+ holds  a.txt")
    assert lines[1] == "x b.txt:7: expected n1/1 starts 3 times: it was started 2 time(s)"
    assert lines[2].startswith("x fails  b.txt")
    assert lines[3].startswith("x stuck at 9.0 s: gpt is ")
    assert lines[-1].startswith("x fails  c.txt")


def test_as_json(cli, file):
    document = cli.json("scenario", file(TEXT))
    assert (document["schema"], document["ok"]) == ("unicron.scenarios/1", True)
    (item,) = document["items"]
    assert (item["file"], item["title"], item["exit_code"]) == ("a.txt", "one is killed", 0)
    assert item["expectations"][1] == {
        "line": 7,
        "text": "n1/1 starts 2 times",
        "ok": True,
        "found": None,
    }
    assert (item["same_trace"], item["stuck"], item["divergence"]) == (None, None, None)
    assert item["trace"][-1].startswith(f"digest {item['digest'][:16]}")


def test_a_line_that_cannot_be_read(cli, file):
    done = cli("scenario", file(TEXT.replace("n1/1 is killed", "n1/2 is killed")))
    assert done.exit_code == 2
    assert done.stderr.splitlines() == [
        "error: a.txt:4: there is no worker n1/2: n1 has 2 device(s) (E-SCENARIO)",
        "the line is: at 3 s, n1/2 is killed by signal 9",
        "try: use n1/0 to n1/1, or declare more devices above",
    ]


def test_a_file_that_is_no_text(cli):
    Path("b.txt").write_bytes(b"\xff\xfe\x00")
    done = cli("scenario", "b.txt")
    assert done.exit_code == 2
    assert "b.txt can't be read" in done.stderr
    assert cli("scenario", "none.txt").exit_code == 2
