"""The solver as a child process: one problem in, one plan out.

`python -m unicron.planner.child` reads a `PlanProblem` as JSON from standard input and writes one
line of JSON to standard output: the plan and exit code 0, or `{"error", "field", "reason", "fix"}`
and exit code 1 if the problem is bad. Any other end (a traceback with code 2, a signal, silence
past the caller's limit) is the planner's fault, and the caller goes on with the local answer.
"""

from __future__ import annotations

import sys
import traceback
from typing import BinaryIO

import msgspec

from unicron.planner.cpsat import solve
from unicron.planner.errors import BadProblem
from unicron.planner.plan import encode_plan
from unicron.planner.problem import PlanProblem
from unicron.planner.validation import validate


def answer(request: bytes) -> bytes:
    """The plan for an encoded problem, encoded; raises `BadProblem` for bytes that hold none."""
    try:
        problem = msgspec.json.decode(request, type=PlanProblem)
    except msgspec.DecodeError as error:
        raise BadProblem("problem", str(error), "send one PlanProblem as JSON") from error
    validate(problem)
    return encode_plan(solve(problem))


def main(source: BinaryIO, sink: BinaryIO) -> int:
    """Answer the request in `source`; the exit code says how it went."""
    try:
        reply, code = answer(source.read()), 0
    except BadProblem as error:
        body = {
            "error": "bad problem",
            "field": error.field,
            "reason": error.reason,
            "fix": error.fix,
        }
        reply, code = msgspec.json.encode(body), 1
    except Exception:
        traceback.print_exc()
        return 2
    sink.write(reply + b"\n")
    sink.flush()
    return code


if __name__ == "__main__":
    raise SystemExit(main(sys.stdin.buffer, sys.stdout.buffer))
