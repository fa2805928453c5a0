"""Ways to touch a history file, each at a place that chance picks.

A tampering takes the lines of a file and gives other lines. Where it shows first is found here
without the reader: it is the first line that isn't what stood there, and that line's sequence.
"""

import random
from collections.abc import Callable

import msgspec

Lines = list[bytes]
Tampering = Callable[[random.Random, Lines], Lines]


def places(lines: Lines) -> list[int]:
    """The sequence of each line: 0 for the header, k for event k and the digest after it, one
    more than the last for the seal; and for what may come after it."""
    found, seq = [], 0
    for line in lines:
        content = msgspec.json.decode(line)
        if "seq" in content:
            seq = content["seq"]
        found.append(seq + 1 if "seal" in content else seq)
    return [*found, seq + 1]


def first_wrong(lines: Lines, touched: Lines) -> int:
    """The sequence of the first line that is another, missing or too many."""
    for at, seq in enumerate(places(lines)):
        if lines[at : at + 1] != touched[at : at + 1]:
            return seq
    raise AssertionError("nothing was touched")


def _of(kind: bytes, lines: Lines) -> list[int]:
    """Indices of the lines of a kind: ``seq``, ``digest``, ``seal`` or ``unicron_history``."""
    return [i for i, line in enumerate(lines) if line.startswith(b'{"' + kind + b'"')]


def _an(kind: bytes, chance: random.Random, lines: Lines) -> int:
    return chance.choice(_of(kind, lines))


def _put(lines: Lines, at: int, line: bytes) -> Lines:
    return [*lines[:at], line, *lines[at + 1 :]]


def _digit(chance: random.Random, line: bytes, after: bytes) -> bytes:
    """The line with another first digit (or hex digit) after that text."""
    at = line.index(after) + len(after)
    other = chance.choice([d for d in b"23456789" if d != line[at]])
    return line[:at] + bytes([other]) + line[at + 1 :]


# --- A field changed -----------------------------------------------------------------------------


def time_of_writing(chance: random.Random, lines: Lines) -> Lines:
    """`written_at_ns`: nothing is ever computed from it."""
    with_it = [i for i in _of(b"seq", lines) if b'written_at_ns":' in lines[i]]
    at = chance.choice(with_it)
    return _put(lines, at, _digit(chance, lines[at], b'written_at_ns":'))


def time_of_storing(chance: random.Random, lines: Lines) -> Lines:
    at = _an(b"seq", chance, lines)
    return _put(lines, at, _digit(chance, lines[at], b'"at_ns":'))


def a_letter(chance: random.Random, lines: Lines) -> Lines:
    """Any letter anywhere in an event: evidence, a name, a tag, a subject, a check."""
    at = _an(b"seq", chance, lines)
    letters = [i for i, c in enumerate(lines[at]) if chr(c).isalpha()]
    here = chance.choice(letters)
    return _put(lines, at, lines[at][:here] + b"#" + lines[at][here + 1 :])


def a_byte_of_the_header(chance: random.Random, lines: Lines) -> Lines:
    field = chance.choice([b'"cluster":"', b'"birth":"', b'"version":"', b'"chain_before":"'])
    return _put(lines, 0, _digit(chance, lines[0], field))


def a_number_of_the_header(chance: random.Random, lines: Lines) -> Lines:
    field = chance.choice([b'"first_seq":', b'"fold_version":', b'"digest_every":'])
    return _put(lines, 0, _digit(chance, lines[0], field))


def a_digest(chance: random.Random, lines: Lines) -> Lines:
    at = _an(b"digest", chance, lines)
    return _put(lines, at, _digit(chance, lines[at], b'"state_digest":"'))


def the_seal(chance: random.Random, lines: Lines) -> Lines:
    field = chance.choice([b'"events":', b'"last_seq":', b'"chain":"', b'"state_digest":"'])
    return _put(lines, len(lines) - 1, _digit(chance, lines[-1], field))


def a_check(chance: random.Random, lines: Lines) -> Lines:
    at = chance.randrange(len(lines))
    return _put(lines, at, _digit(chance, lines[at], b'"check":"'))


# --- Lines dropped, swapped, added ---------------------------------------------------------------


def dropped(chance: random.Random, lines: Lines) -> Lines:
    at = _an(b"seq", chance, lines)
    return lines[:at] + lines[at + 1 :]


def a_stretch_dropped(chance: random.Random, lines: Lines) -> Lines:
    first, last = sorted(chance.sample(_of(b"seq", lines), 2))
    return lines[:first] + lines[last:]


def swapped(chance: random.Random, lines: Lines) -> Lines:
    a, b = chance.sample(_of(b"seq", lines), 2)
    touched = list(lines)
    touched[a], touched[b] = lines[b], lines[a]
    return touched


def repeated(chance: random.Random, lines: Lines) -> Lines:
    at = _an(b"seq", chance, lines)
    return [*lines[: at + 1], *lines[at:]]


def added_from_elsewhere(chance: random.Random, lines: Lines) -> Lines:
    return [*lines[: (at := _an(b"seq", chance, lines))], _an_event(chance, lines), *lines[at:]]


def made_up(chance: random.Random, lines: Lines) -> Lines:
    """One more event, with the right sequence and those after it moved on."""
    at = _an(b"seq", chance, lines)
    seq = msgspec.json.decode(lines[at])["seq"]
    line = lines[at].replace(b'"subject":"', b'"subject":"x', 1)
    moved = [
        entry.replace(b'{"seq":%d,' % n, b'{"seq":%d,' % (n + 1), 1)
        for n, entry in enumerate(lines[at:], seq)
    ]
    return [*lines[:at], line, *moved]


def a_digest_dropped(chance: random.Random, lines: Lines) -> Lines:
    at = _an(b"digest", chance, lines)
    return lines[:at] + lines[at + 1 :]


def a_digest_moved(chance: random.Random, lines: Lines) -> Lines:
    at = _an(b"digest", chance, lines)
    return [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]


def a_digest_added(chance: random.Random, lines: Lines) -> Lines:
    at = _an(b"seq", chance, lines)
    return [*lines[:at], lines[_an(b"digest", chance, lines)], *lines[at:]]


def lines_after_the_seal(chance: random.Random, lines: Lines) -> Lines:
    return [*lines, _an_event(chance, lines)]


def _an_event(chance: random.Random, lines: Lines) -> bytes:
    return lines[_an(b"seq", chance, lines)]


# --- The end -------------------------------------------------------------------------------------


def the_end_cut_off(chance: random.Random, lines: Lines) -> Lines:
    return lines[: chance.randrange(1, len(lines))]


def the_seal_missing(chance: random.Random, lines: Lines) -> Lines:
    return lines[:-1]


def sealed_early(chance: random.Random, lines: Lines) -> Lines:
    """The end cut off, and the seal put after what is left."""
    return [*lines[: chance.choice(_of(b"seq", lines))], lines[-1]]


#: Edits that leave whole lines.
TAMPERINGS: dict[str, Tampering] = {
    function.__name__: function
    for function in (
        time_of_writing,
        time_of_storing,
        a_letter,
        a_byte_of_the_header,
        a_number_of_the_header,
        a_digest,
        the_seal,
        a_check,
        dropped,
        a_stretch_dropped,
        swapped,
        repeated,
        added_from_elsewhere,
        made_up,
        a_digest_dropped,
        a_digest_moved,
        a_digest_added,
        lines_after_the_seal,
        the_end_cut_off,
        the_seal_missing,
        sealed_early,
    )
}
