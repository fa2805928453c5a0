"""Whoever touches a history is found out, and where: files of several simulated nights, touched in
every way at random places; and logs that have no seal yet."""

import random

import msgspec
import pytest
from click.testing import CliRunner

from tests.replay.tampering import TAMPERINGS, first_wrong
from unicron import events as ev
from unicron.controlplane.cli.main import main
from unicron.controlplane.core.state import FOLD_VERSION as FOLD
from unicron.controlplane.replay import Replayer, export_history, replay_once
from unicron.controlplane.testing.seeds import options_of
from unicron.controlplane.testing.simulation import run
from unicron.events import codec

SEEDS = (1, 2, 3)
#: Tamperings of each kind for each seed, and most events of a night: enough to hit all sorts.
TRIES, EVENTS = 6, 500


def export(path, log):
    export_history(path, log, cluster="sim", birth="b", version="v", digest_every=20)
    return path


@pytest.fixture(scope="module")
def nights():
    """The beginning of a night of each seed, with faults in it and a decision at its end."""
    logs = {}
    for seed in SEEDS:
        log = run(options_of(seed)).log[:EVENTS]
        assert any(isinstance(r.envelope.body, ev.IncidentOpened) for r in log if r.envelope)
        logs[seed] = log[: decided(log)[-1]]
        assert len(logs[seed]) > EVENTS // 2
    return logs


def decided(log):
    """Sequences of what decide() gave."""
    return [r.seq for r in log if r.envelope is not None and r.envelope.basis is not None]


@pytest.fixture(scope="module")
def files(nights, tmp_path_factory):
    folder = tmp_path_factory.mktemp("nights")
    return {seed: export(folder / f"{seed}.ndjson", log) for seed, log in nights.items()}


def test_untouched_they_hold(nights, files):
    for seed, path in files.items():
        history = ev.read_history(path)
        assert history.events == nights[seed]
        assert len(history.digests) == len(nights[seed]) // 20 + 1
        assert Replayer(history.events).verify().verified


@pytest.mark.parametrize("name", TAMPERINGS)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_wrong_sequence_is_named_and_right(files, tmp_path, seed, name):
    lines = files[seed].read_bytes().splitlines(keepends=True)
    path = tmp_path / "touched.ndjson"
    for number in range(TRIES):
        touched = TAMPERINGS[name](random.Random(f"{seed}:{name}:{number}"), lines)
        path.write_bytes(b"".join(touched))
        with pytest.raises(ev.LogBroken) as raised:
            ev.read_history(path)
        assert raised.value.first_wrong == first_wrong(lines, touched), raised.value


@pytest.mark.parametrize("seed", SEEDS)
def test_half_a_line_is_told_from_a_missing_one(files, tmp_path, seed):
    whole = files[seed].read_bytes()
    header, path = whole.index(b"\n") + 1, tmp_path / "half.ndjson"
    for number in range(TRIES):
        size = random.Random(number).randrange(header + 1, len(whole))
        path.write_bytes(whole[:size])
        with pytest.raises(ev.LogBroken) as raised:
            ev.read_history(path)
        at_an_end = whole[size - 1 : size] == b"\n"
        assert raised.value.code == ("E-LOG-SHORT" if at_an_end else "E-LOG-HALF")


@pytest.mark.parametrize("one,other", [(1, 2), (2, 3)])
def test_parts_of_another_file(nights, files, tmp_path, one, other):
    """A header or a seal that is whole by itself: it doesn't fit to the rest."""
    lines, foreign = (files[s].read_bytes().splitlines(keepends=True) for s in (one, other))
    path = tmp_path / "mixed.ndjson"
    path.write_bytes(b"".join([*lines[:-1], foreign[-1]]))
    with pytest.raises(ev.LogBroken) as raised:
        ev.read_history(path)
    assert raised.value.first_wrong == len(nights[one]) + 1
    head = tmp_path / "head.ndjson"
    export_history(head, (), cluster="other", birth="b", version="v", digest_every=20)
    path.write_bytes(b"".join([head.read_bytes().splitlines(keepends=True)[0], *lines[1:]]))
    with pytest.raises(ev.LogBroken) as raised:
        ev.read_history(path)
    assert raised.value.first_wrong == 1  # the first line that doesn't fit to what came before


@pytest.mark.parametrize("name", TAMPERINGS)
@pytest.mark.parametrize("command", [("replay",), ("replay", "--verify"), ("audit",)], ids=" ".join)
def test_every_command_that_reads_a_history_refuses_it(files, tmp_path, name, command):
    lines = files[1].read_bytes().splitlines(keepends=True)
    touched = TAMPERINGS[name](random.Random(name), lines)
    path = tmp_path / "touched.ndjson"
    path.write_bytes(b"".join(touched))
    done = CliRunner().invoke(main, [*command, "--log", str(path), "--json"])
    assert done.exit_code == 1, done.output
    document = msgspec.json.decode(done.stdout)
    assert document["first_wrong_seq"] == first_wrong(lines, touched)
    assert document["code"].startswith("E-LOG-")


def test_a_touched_end_is_refused_also_if_only_the_beginning_is_asked_for(files, tmp_path):
    lines = files[1].read_bytes().splitlines(keepends=True)
    path = tmp_path / "cut.ndjson"
    path.write_bytes(b"".join(lines[:-1]))
    done = CliRunner().invoke(main, ["replay", "--log", str(path), "--until", "5"])
    assert (done.exit_code, done.stdout) == (1, "")


# --- Without a seal: a live log, or a file whose checks were all made to fit ----------------------


def retouched(log, seq):
    """The log with one event changed so that nothing in the state changes."""
    entry = log[seq - 1]
    envelope = entry.envelope
    changed = msgspec.structs.replace(envelope, written_at_ns=envelope.written_at_ns + 1)
    again = codec.record(seq, entry.subject, codec.encode(changed), entry.at_ns)
    return [*log[: seq - 1], again, *log[seq:]]


def envelopes(log, upto):
    return [r.seq for r in log[:upto] if r.envelope is not None and ".advisory." not in r.subject]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_next_decision_shows_that_an_event_was_changed(nights, seed):
    log, chance = nights[seed], random.Random(seed)
    vouched = Replayer(log).verify().vouched
    assert vouched >= decided(log)[-2]
    for seq in chance.sample(envelopes(log, vouched), 12):
        found = Replayer(retouched(log, seq)).verify().divergence
        assert found.what == "chain"
        assert found.since <= seq < found.seq
        assert len([d for d in decided(log) if found.since <= d < found.seq]) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_after_the_last_decision_nothing_vouches_but_a_seal(nights, files, tmp_path, seed):
    log, last = nights[seed], len(nights[seed])
    report = Replayer(log).verify()
    assert report.vouched < last
    touched = retouched(log, last)
    after = Replayer(touched).verify()
    assert after.verified
    assert after.vouched == report.vouched
    whole = ev.read_history(export(tmp_path / "a", log)).seal
    assert ev.read_history(export(tmp_path / "b", touched)).seal.chain != whole.chain


@pytest.mark.parametrize("seed", SEEDS)
def test_a_file_with_right_checks_and_a_right_seal_is_still_found_out(nights, tmp_path, seed):
    log = nights[seed]
    seq = random.Random(seed).choice(envelopes(log, decided(log)[-2]))
    path = export(tmp_path / "forged.ndjson", retouched(log, seq))
    done = CliRunner().invoke(main, ["replay", "--log", str(path), "--verify", "--json"])
    assert done.exit_code == 1
    divergence = msgspec.json.decode(done.stdout)["divergence"]
    assert divergence["what"] == "chain"
    assert divergence["since"] <= seq < divergence["seq"]


def test_digests_that_are_not_the_folds(nights, tmp_path):
    """Checks and seal fit, chains too: the digests of another fold show it."""
    header = ev.HistoryHeader(
        cluster="sim", birth="b", version="v", fold_version=FOLD, digest_every=20
    )
    path = tmp_path / "log.ndjson"
    ev.write_history(path, header, nights[1], lambda: "0" * 64)
    done = CliRunner().invoke(main, ["replay", "--log", str(path), "--verify", "--json"])
    assert done.exit_code == 1
    divergence = msgspec.json.decode(done.stdout)["divergence"]
    assert (divergence["seq"], divergence["what"]) == (20, "digest")
    other = msgspec.structs.replace(header, fold_version=FOLD + 1)
    ev.write_history(path, other, nights[1], lambda: "0" * 64)
    with path.open("rb") as file:
        reader = ev.HistoryReader("x", file)
        report, _ = replay_once(reader, verify=True, fold_version=reader.header.fold_version)
    assert (report.verified, report.digests) == (True, 0)
