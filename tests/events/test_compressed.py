"""Histories in zstd: the same as plain ones, whatever is done to the file."""

import io
import random
import sys

import msgspec
import pytest
import zstandard

from tests.events.test_history import HEADER, some_events
from unicron.events import (
    ConfigError,
    HistoryReader,
    LogBroken,
    LogError,
    compressed,
    read_history,
    write_history,
)

MANY = 400


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "night.ndjson.zst"
    write_history(file, HEADER, some_events(MANY))
    return file


def test_it_is_a_zstd_file_of_the_plain_one_and_reads_the_same(path, tmp_path):
    plain = tmp_path / "night.ndjson"
    seal = write_history(plain, HEADER, some_events(MANY))
    reader = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), closefd=True)
    with reader:
        assert reader.read() == plain.read_bytes()
    assert path.stat().st_size < plain.stat().st_size / 4
    assert read_history(path, strict=True) == read_history(plain, strict=True)
    assert read_history(path).seal == seal


def test_it_is_known_by_its_content_whatever_its_name(path):
    renamed = path.rename(path.with_name("night.ndjson"))
    assert len(read_history(renamed).events) == MANY


def test_several_frames_are_one_file(path):
    """As `cat` or a tool with frames of its own leaves it."""
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
    parts = [text[:1000], text[1000:1001], text[1001:]]
    path.write_bytes(b"".join(zstandard.ZstdCompressor().compress(part) for part in parts))
    assert len(read_history(path).events) == MANY


def test_one_that_is_cut_off_says_so_at_every_length(path):
    whole = path.read_bytes()
    found = set()
    for length in [*range(1, 40), *range(40, len(whole) - 4, 97), len(whole) - 5]:
        path.write_bytes(whole[:length])  # the last four are the frame's own checksum
        with pytest.raises(LogError) as raised:
            read_history(path)
        assert raised.value.fix
        found.add(raised.value.code)
    assert found <= {"E-LOG-FORMAT", "E-LOG-SHORT", "E-LOG-HALF", "E-LOG-CHANGED"}
    assert found & {"E-LOG-SHORT", "E-LOG-HALF"}


def test_a_flipped_byte_is_noticed_wherever_it_makes_a_difference(path):
    whole, history = path.read_bytes(), read_history(path)
    chance, refused = random.Random(1), 0
    for at in [*range(40), *chance.sample(range(40, len(whole)), 60)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :])
        try:
            found = read_history(path)
        except LogError:
            refused += 1
        else:
            assert found == history
    assert refused > 90


def test_where_the_data_is_garbled_is_told_to_a_buffer(path):
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes()).read()
    lines = text.splitlines(keepends=True)
    begin = zstandard.ZstdCompressor().compress(b"".join(lines[:101]))
    path.write_bytes(begin + b"no frame")
    with pytest.raises(LogBroken, match="is damaged before event ") as raised:
        read_history(path)
    assert 40 < raised.value.first_wrong <= 101


def test_what_unpacks_into_gigabytes_is_refused_at_its_first_line(tmp_path, monkeypatch):
    """In little memory: the reader never asks for more than one line of bounded length."""
    packer = zstandard.ZstdCompressor(level=3)
    zeros = io.BytesIO()
    with packer.stream_writer(zeros, closefd=False) as writer:
        for _ in range(256):
            writer.write(b"\0" * (1 << 20))
    path = tmp_path / "bomb.ndjson.zst"
    path.write_bytes(zeros.getvalue())
    assert path.stat().st_size < 100_000
    sizes = []
    readinto = compressed._Unpacked.readinto

    def counted(self, buffer):
        sizes.append(readinto(self, buffer))
        return sizes[-1]

    monkeypatch.setattr(compressed._Unpacked, "readinto", counted)
    with path.open("rb") as file, pytest.raises(LogError):
        HistoryReader("bomb", compressed.unpacked(file))
    assert 0 < sum(sizes) <= 17 << 20


def test_without_the_library_the_error_says_what_to_install(path, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ConfigError, match="can't be read here") as raised:
        read_history(path)
    assert "unicron-controlplane[zstd]" in raised.value.fix
    other = tmp_path / "other.ndjson.zst"
    with pytest.raises(ConfigError, match="can't be written here"):
        write_history(other, HEADER, some_events())
    assert [p.name for p in tmp_path.iterdir()] == ["night.ndjson.zst"]


def test_a_plain_file_needs_no_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    path = tmp_path / "night.ndjson"
    write_history(path, HEADER, some_events())
    assert len(read_history(path).events) == 6


def test_events_stand_in_the_file_as_they_are(tmp_path):
    """So that jq reads them; bytes that aren't JSON in one line stand there as text."""
    path = tmp_path / "night.ndjson"
    write_history(path, HEADER, some_events())
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert [line["event"]["id"] for line in lines[1:-1]] == [f"a:1:{n}" for n in range(1, 7)]
