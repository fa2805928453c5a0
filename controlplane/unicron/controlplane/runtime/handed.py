"""What a program hands in, checked as readers of the log would check it: a struct that is built in
Python takes values of any type, and an event with 1.5 for an integer could never be read again."""

from typing import TypeVar

import msgspec

_Body = TypeVar("_Body", bound=msgspec.Struct)


def as_read(body: _Body, kind: type[_Body]) -> _Body:
    """The same as it will be read from the log. ValueError names the first field that can't be."""
    try:
        written = msgspec.json.encode(body, order="deterministic")
        read = msgspec.json.decode(written, type=kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"a value of another type: {error}") from None
    except (UnicodeError, OverflowError, TypeError) as error:
        raise ValueError(f"a value that can't be written: {error}") from None
    if msgspec.json.encode(read, order="deterministic") != written:
        # A mapping in place of a struct, of which a reader leaves out what it doesn't know.
        raise ValueError(f"a value of another type: give {kind.__name__} the types that it names")
    return read
