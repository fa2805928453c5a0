"""Hypothesis strategies for every event type, read from the types as the catalogue reads them."""

import types
from typing import Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from unicron.events import AnyEvent, Envelope, Source

EVENT_TYPES = get_args(AnyEvent)

_INTEGERS = st.integers(min_value=-(2**53), max_value=2**53)
_TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)


def of_type(annotation):
    """Values of a field's type."""
    annotation = getattr(annotation, "__supertype__", annotation)  # NewType
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation is int:
        return _INTEGERS
    if annotation is str:
        return _TEXTS
    if annotation is bool:
        return st.booleans()
    if annotation is types.NoneType:
        return st.none()
    if origin in {Union, types.UnionType}:
        return st.one_of([of_type(argument) for argument in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(of_type(arguments[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*map(of_type, arguments))
    assert issubclass(annotation, msgspec.Struct), annotation
    return struct(annotation)


def struct(struct_type):
    """Values of a struct type, with optional fields given or left to their default."""
    fields = msgspec.structs.fields(struct_type)
    given = {f.name: of_type(f.type) for f in fields if f.required}
    optional = {f.name: of_type(f.type) for f in fields if not f.required}
    arguments = st.fixed_dictionaries(given, optional=optional)
    return arguments.map(lambda chosen: struct_type(**chosen))


def envelopes(body=None):
    """Envelopes around `body`, or around any event."""
    bodies = st.one_of([struct(e) for e in EVENT_TYPES]) if body is None else body
    return st.builds(
        Envelope,
        id=_TEXTS,
        source=struct(Source),
        written_at_ns=_INTEGERS,
        body=bodies,
        term=_INTEGERS,
        cause=st.lists(_INTEGERS, max_size=3).map(tuple),
        incident=st.none() | _TEXTS,
        traceparent=st.none() | _TEXTS,
    )
