"""The planner as a child process: one problem in, the best plan out (see `best.py`).

`python -m unicron.planner.child` reads a `PlanProblem` as JSON from standard input and writes one
line of JSON to standard output: the plan and exit code 0, or `{"error", "field", "reason", "fix"}`
and exit code 1 if the problem is bad. With `--explain` the plan is followed, when it is ready, by a
second line: the explanation, a list of lines for people. Any other end (a traceback with code 2, a
signal, silence past the caller's limit) is the planner's fault, and the caller goes on with the
local answer.
"""

from __future__ import annotations

import sys
import traceback
from typing import BinaryIO

import msgspec

from unicron.planner import cpsat  # noqa: F401 - loaded before it is needed
from unicron.planner.best import best_plan
from unicron.planner.errors import BadProblem
from unicron.planner.explain import explain
from unicron.planner.plan import Plan, encode_plan
from unicron.planner.problem import PlanProblem
from unicron.planner.validation import validate


def answer(request: bytes) -> tuple[PlanProblem, Plan]:
    """The problem and the plan for it; raises `BadProblem` for bytes that hold none."""
    try:
        problem = msgspec.json.decode(request, type=PlanProblem)
    except msgspec.DecodeError as error:
        raise BadProblem("problem", str(error), "send one PlanProblem as JSON") from error
    validate(problem)
    return problem, best_plan(problem)


def main(source: BinaryIO, sink: BinaryIO, *, explained: bool = False) -> int:
    """Answer the request in `source`; the exit code says how it went."""
    try:
        problem, plan = answer(source.read())
        _say(sink, encode_plan(plan))
        if explained:
            _say(sink, msgspec.json.encode(explain(problem, plan)))
    except BadProblem as error:
        body = {
            "error": "bad problem",
            "field": error.field,
            "reason": error.reason,
            "fix": error.fix,
        }
        _say(sink, msgspec.json.encode(body))
        return 1
    except Exception:
        traceback.print_exc()
        return 2
    return 0


def _say(sink: BinaryIO, line: bytes) -> None:
    sink.write(line + b"\n")
    sink.flush()


if __name__ == "__main__":
    raise SystemExit(
        main(sys.stdin.buffer, sys.stdout.buffer, explained="--explain" in sys.argv[1:])
    )
