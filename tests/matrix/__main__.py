"""The fault matrix at random, for as long as you like: python -m tests.matrix --seconds 600

Cells in random order, on longer and longer histories than the tests have. Folders of what went
wrong are kept."""

import argparse
import asyncio
import random
import sys
import time

from tests.matrix import campaign
from tests.matrix.cells import CELLS


def _until(end, seed):
    source = random.Random(seed)
    while time.monotonic() < end:
        cell = source.choice(CELLS)
        print(cell, flush=True)
        yield cell


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lanes", type=int, default=campaign.LANES, help="fleets at a time")
    given = parser.parse_args()
    cells = _until(time.monotonic() + given.seconds, given.seed)
    found = asyncio.run(campaign.run(cells, given.lanes))
    wrong = [f"{cell or 'a whole history'}: {text}" for cell, text in found if text]
    print(*wrong, f"{len(found)} outcomes, {len(wrong)} wrong", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
