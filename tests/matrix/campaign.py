"""Runs cells on several fleets at a time, which mostly wait."""

import asyncio
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from tests.matrix.cells import Cell, tried
from tests.matrix.lane import Lane

LANES = 4


async def run(cells: Iterator[Cell], lanes: int = LANES) -> list[tuple[Cell | None, str]]:
    """What came of each cell, and of the check of each whole history (None): "", or what went wrong
    and the folder that was kept."""
    found: list[tuple[Cell | None, str]] = []
    await asyncio.gather(*(_lane(cells, found) for _ in range(lanes)))
    return found


async def _lane(cells: Iterator[Cell], found: list[tuple[Cell | None, str]]) -> None:
    """One cell after the other on one fleet; a fresh one when something went wrong."""
    while (cell := next(cells, None)) is not None:
        folder = Path(tempfile.mkdtemp(prefix="mx"))  # short, for the sockets in it
        try:
            async with Lane(folder) as lane:
                while cell is not None:
                    await tried(lane, cell)
                    found.append((cell, ""))
                    cell = next(cells, None)
                await lane.check()
            shutil.rmtree(folder)
            found.append((None, ""))
        except Exception:
            found.append((cell, f"{folder}\n{traceback.format_exc()}"))
