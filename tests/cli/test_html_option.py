"""`unicron audit … --html FILE`: what is written where, what is refused, and a hostile log in a
real browser, where there is one."""

import http.server
import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.core.story import running
from tests.replay.histories import night
from tests.replay.pages import drawn, every, parsed, text

_ONCE = ("--virtual-time-budget=1000", "--dump-dom")
BROWSER = next(filter(None, map(shutil.which, ("chromium-headless-shell", "chromium"))), None)


@pytest.fixture
def nightly(cli):
    night().history(Path("night.ndjson"))
    return "night.ndjson"


def test_the_page_of_one_incident(cli, log):
    plain = cli("audit", "--log", log, "inc-")
    done = cli("audit", "--log", log, "inc-", "--html", "one.html")
    assert done.exit_code == 0
    assert done.stdout == plain.stdout
    (item,) = cli.json("audit", "--log", log)["items"]
    assert done.stderr.startswith(f"page of {item['id']} written to one.html (")
    page = Path("one.html").read_text(encoding="utf-8")
    said = text(parsed(page))
    document = cli.json("audit", "--log", log, "inc-")
    assert [line for line in document["headline"] if line not in said] == []
    assert [e["what"] for e in document["events"] if e["what"] not in said] == []
    assert f"unicron events --for {item['id']} --log log.ndjson" in said
    assert stat.S_IMODE(os.stat("one.html").st_mode) == 0o666 & ~_umask()
    assert [p.name for p in Path().iterdir() if p.name.startswith(".")] == []


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_the_page_of_all_incidents_says_what_the_list_says(cli, nightly):
    done = cli("audit", "--log", nightly, "--html", "all.html")
    assert done.exit_code == 0
    page = Path("all.html").read_text(encoding="utf-8")
    assert done.stdout.splitlines()[0] in text(parsed(page))
    document = cli.json("audit", "--log", nightly)
    linked = [text(a) for a in every(parsed(page), "td") if every(a, "a")]
    assert linked == [i["id"] for i in document["items"]]
    assert len(drawn(page)) == len(linked) == 2
    points = [p for curve in document["throughput"] for p in curve["points"]]
    rows = [[text(c) for c in every(r, "td")] for r in every(parsed(page), "tr")]
    for p in points:
        cells = [f"#{p['seq']:,}", f"{p['gflops']:,}", str(p["devices"]), str(p["generation"])]
        assert cells in [row[2:] for row in rows]


@pytest.mark.parametrize("option", ["--html", "--trace"])
@pytest.mark.parametrize("named", ["night.ndjson", ".", "./night.ndjson"])
def test_the_log_itself_is_never_replaced(cli, nightly, option, named):
    before = Path(nightly).read_bytes()
    done = cli("audit", "--log", named, option, nightly, "--force")
    assert done.exit_code == 2
    assert "is the log that is read (E-EXPORT-TARGET)" in done.stderr
    assert Path(nightly).read_bytes() == before


def test_page_and_trace_have_a_file_each(cli, nightly):
    done = cli("audit", "--log", nightly, "--html", "x", "--trace", "./x")
    assert done.exit_code == 2
    assert "would both be written to x" in done.stderr
    assert not Path("x").exists()


def test_the_same_log_gives_the_same_page(cli, nightly):
    cli("audit", "--log", nightly, "--html", "a.html")
    cli("audit", "--log", nightly, "--html", "b.html")
    assert Path("a.html").read_bytes() == Path("b.html").read_bytes()


def test_a_page_of_what_could_be_told_then(cli, nightly):
    last = cli.json("audit", "--log", nightly)["items"][0]["last_seq"]
    cli("audit", "--log", nightly, "--at", str(last - 1), "--html", "then.html")
    page = Path("then.html").read_text(encoding="utf-8")
    assert "1 incident, 1 open" in text(parsed(page))
    assert f"--at {last - 1} --log night.ndjson" in str(drawn(page))


def test_nothing_is_replaced_unless_told(cli, log):
    Path("one.html").write_text("mine")
    refused = cli("audit", "--log", log, "--html", "one.html")
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert "one.html is there already" in refused.stderr
    assert "a page replaces nothing by itself" in refused.stderr
    assert Path("one.html").read_text() == "mine"
    assert cli("audit", "--log", log, "--html", "one.html", "--force").exit_code == 0
    assert Path("one.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_page_on_stdout_is_all_there_is(cli, log):
    done = subprocess.run(
        [sys.executable, "-m", "unicron.controlplane.cli", "audit", "--log", log, "--html", "-"],
        capture_output=True,
        check=True,
    )
    cli("audit", "--log", log, "--html", "one.html")
    assert done.stdout == Path("one.html").read_bytes()
    assert done.stderr == b""


@pytest.mark.parametrize(
    "arguments,said",
    [
        (["--html", "-", "--json"], "--json and --html - would both go to stdout"),
        (["--trace", "-", "--json"], "--json and --trace - would both go to stdout"),
        (["--html", "-", "--trace", "-"], "--html - and --trace - would both go to stdout"),
        (["--force"], "--force goes with --html"),
        (["--html", ""], "give the name of a file"),
        (["--html", "no/such/page.html"], "there is no folder no/such"),
        (["--html", "."], ". is a folder"),
    ],
)
def test_where_a_page_cannot_go(cli, log, arguments, said):
    done = cli("audit", "--log", log, *arguments)
    assert done.exit_code == 2
    assert said in done.stderr
    assert done.stdout == "" or json.loads(done.stdout)["code"] == "E-USAGE"
    assert (done.stdout == "") is ("--json" not in arguments)


def test_a_page_that_cannot_be_written_leaves_what_was_there(cli, log, monkeypatch):
    Path("one.html").write_text("mine")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    done = cli("audit", "--log", log, "--html", "one.html", "--force")
    assert done.exit_code == 2
    assert "can't write the page to one.html" in done.stderr
    assert "No space left on device" in done.stderr
    assert Path("one.html").read_text() == "mine"
    assert sorted(p.name for p in Path().iterdir()) == ["log.ndjson", "one.html"]


def test_a_log_without_incidents(cli):
    running(1).history(Path("calm.ndjson"))
    assert cli("audit", "--log", "calm.ndjson", "--html", "calm.html").exit_code == 0
    page = Path("calm.html").read_text(encoding="utf-8")
    assert "0 incidents, 0 open" in text(parsed(page))
    assert drawn(page) == []


# --- A hostile log -------------------------------------------------------------------------------


def hostile(message):
    """A worker raised this."""
    story = running(1)
    story.raises("n1/1", "software", message)
    story.settle()
    return story


def test_a_hostile_exception_is_text(cli):
    message = "</script><img src=x onerror=alert(1)>"
    hostile(message).history(Path("hostile.ndjson"))
    cli("audit", "--log", "hostile.ndjson", "inc-", "--html", "one.html")
    cli("audit", "--log", "hostile.ndjson", "--html", "all.html")
    pages = [Path(p).read_text(encoding="utf-8") for p in ("one.html", "all.html")]
    assert message in text(parsed(pages[0]))
    assert message in str(drawn(pages[1]))
    for page in pages:
        assert not every(parsed(page), "img")
        assert "<img" not in page


@pytest.mark.real
@pytest.mark.skipif(BROWSER is None, reason="no headless Chromium here")
@pytest.mark.parametrize("page,place", [("one.html", ""), ("all.html", "#i0")])
def test_in_a_browser_a_hostile_log_runs_nothing_and_asks_for_nothing(cli, page, place):
    asked = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        there = f"http://127.0.0.1:{server.server_port}/"
        script = "document.body.className=String.fromCharCode(111,119,110,101,100)"
        message = (
            f"</script></style></title><img src={there} onerror={script}><script>{script}</script>"
            f"<link rel=stylesheet href={there}><iframe src={there}></iframe>"
        )
        hostile(message).history(Path("hostile.ndjson"))
        cli("audit", "--log", "hostile.ndjson", "inc-", "--html", "one.html")
        cli("audit", "--log", "hostile.ndjson", "--html", "all.html")
        shown = _dom(f"{Path(page).resolve().as_uri()}{place}")
        wanted = list(asked)
        bait = f"<!DOCTYPE html><body><p>{message}"  # as markup it would have run: that is seen
        Path("bait.html").write_text(bait)
        baited = _dom(Path("bait.html").resolve().as_uri())
        server.shutdown()
    assert 'class="owned"' in baited
    assert asked
    assert shown.count('id="e') >= 5  # the story was drawn
    assert "onerror=" in shown
    assert 'class="owned"' not in shown
    assert "<img" not in shown
    assert wanted == []


def _dom(address):
    """What the page has become after a second of its time."""
    done = subprocess.run(
        [BROWSER, "--no-sandbox", "--disable-gpu", *_ONCE, address],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout
