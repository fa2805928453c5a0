"""`make mutants`: does some test notice when the code is wrong?

Changes the code in one small place at a time (a mutant), runs the tests that execute that place,
and lists the changes that no test notices.

Why not a library: mutmut 3 changes functions only, so no table, constant or default of ours; it
leaves out dataclasses; and it works on a copy of the tree, which an editable install of four roots
of one namespace imports past. cosmic-ray edits files where they stand, under the hands of whoever
works on them, and starts the whole test command for each of thousands of mutants. Here a mutant
costs a fork.
"""

import argparse
import random
import sys
from pathlib import Path

from tests.mutation import walk
from tests.mutation.campaign import Campaign
from tests.mutation.outcome import as_json, score, table, unnoticed, unnoticed_in

REPO = Path(__file__).resolve().parents[2]
SUBJECT = "controlplane/unicron/controlplane/core"
TESTS = ["tests/core", "tests/replay", "tests/runtime"]


def arguments(argv: list[str]) -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        prog="make mutants",
        description=__doc__.split("\n\nWhy not")[0],
        epilog=walk.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sample", type=int, metavar="N", help="a random sample of N mutants")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the sample (0)")
    parser.add_argument(
        "--file", action="append", metavar="NAME", help="only this file; repeatable"
    )
    parser.add_argument(
        "--again", type=Path, metavar="FILE", help="only what was not noticed in that --json FILE"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all outcomes there")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="mutants at a time (2)")
    parser.add_argument(
        "--budget", type=float, default=40, metavar="S", help="CPU s of tests for a mutant (40)"
    )
    parser.add_argument(
        "--patience", type=float, default=10, metavar="S", help="CPU s until a test loops (10)"
    )
    parser.add_argument("--subject", type=Path, default=REPO / SUBJECT, help=f"folder ({SUBJECT})")
    parser.add_argument("--tests", nargs="+", default=TESTS, help=f"({' '.join(TESTS)})")
    return parser.parse_args(argv)


def main(argv: list[str]) -> int:
    """0: done; 2: it can't be done."""
    asked = arguments(argv)
    base = asked.subject.resolve()
    files = sorted(base.glob("*.py"))
    chosen = [f for f in files if asked.file is None or {f.name, f.stem} & {*asked.file}]
    if not chosen:
        print(f"error: {base} has no such file: {asked.file}", file=sys.stderr)
        return 2
    mutants = list(walk.all_mutants(chosen))
    all_of_them = len(mutants)
    if asked.again is not None:
        wanted = unnoticed_in(asked.again.read_text(encoding="utf-8"))
        mutants = [m for m in mutants if (m.path.name, *m.diff()) in wanted]
    if asked.sample is not None and asked.sample < len(mutants):
        mutants = random.Random(asked.seed).sample(mutants, asked.sample)
    try:
        outcomes = Campaign(
            chosen, mutants, asked.tests, asked.jobs, asked.budget, asked.patience
        ).run()
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join([*unnoticed(outcomes, base), "", *table(outcomes)]))
    print(f"\n{score(outcomes):.1f} % of {len(outcomes)} mutants (of {all_of_them}) were noticed")
    if asked.json is not None:
        complete = len(mutants) == all_of_them
        asked.json.write_text(as_json(outcomes, base, complete=complete), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
