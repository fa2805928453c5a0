"""Real text as training data: bytes of source files, addressed by (iteration, micro-batch id).

A micro-batch is a pure function of (seed, iteration, id), so it is the same whoever computes it,
and nothing about the loader has to be kept or moved.
"""

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch

#: Enough text for a demonstration, read in milliseconds.
MAX_BYTES = 8_000_000

#: Parts of the standard library's folder that aren't the library, or that distributors leave out.
#: Besides these, what the build of Python generated (it differs from machine to machine).
_SKIPPED = {"__pycache__", "dist-packages", "idlelib", "lib2to3", "site-packages", "test", "tests"}

_MASK = 2**64 - 1


class Text:
    """A corpus of byte-level tokens, 0 .. 255.

    `data`: a file, or a folder whose files are read in the order of their names; "" means the
    Python standard library's own sources. `digest`: SHA-256 of the corpus, equal on all members.
    Raises OSError if it can't be read and ValueError if it is too short for a sequence.
    """

    def __init__(self, data: str, seed: int, seq_length: int, micro_batch_size: int) -> None:
        corpus = bytearray()
        for path in _files(data):
            corpus += path.read_bytes()[: MAX_BYTES - len(corpus)]
            if len(corpus) >= MAX_BYTES:
                break
        self._starts = len(corpus) - seq_length  # one token more than the sequence: the labels
        if self._starts < 1:
            raise ValueError(
                f"{data or 'the standard library'} has {len(corpus)} bytes of text,"
                f" too few for a sequence of {seq_length}"
            )
        self.digest = hashlib.sha256(corpus).hexdigest()
        self._tokens = torch.frombuffer(corpus, dtype=torch.uint8)
        self._seed = seed
        self._length = seq_length
        self._rows = micro_batch_size

    def micro_batch(self, iteration: int, micro_batch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and labels, each int64 [micro_batch_size, seq_length]; labels are the tokens one
        further on."""
        rows = []
        for row in range(self._rows):
            start = mix(self._seed, iteration, micro_batch, row) % self._starts
            rows.append(self._tokens[start : start + self._length + 1])
        both = torch.stack(rows).long()
        return both[:, :-1].contiguous(), both[:, 1:].contiguous()


def mix(*numbers: int) -> int:
    """64 well-mixed bits of some integers (the finalizer of splitmix64 over each)."""
    value = 0x9E3779B97F4A7C15
    for number in numbers:
        value = (value + number * 0xD1342543DE82EF95) & _MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
    return value


def _files(data: str) -> Iterator[Path]:
    """The files of the corpus in their fixed order."""
    if not data:
        root = Path(sysconfig.get_path("stdlib"))
        yield from _walk(root, ".py")
    elif os.path.isdir(data):
        yield from _walk(Path(data), "")
    else:
        yield Path(data)


def _walk(root: Path, suffix: str) -> Iterator[Path]:
    """Files below `root`, sorted folder by folder; lazily, as the limit comes early."""
    names = sorted(os.listdir(root))
    for name in names:
        path = root / name
        if path.is_dir():
            if name not in _SKIPPED and not name.startswith("config-"):
                yield from _walk(path, suffix)
        elif name.endswith(suffix) and not name.startswith("_sysconfigdata"):
            yield path
