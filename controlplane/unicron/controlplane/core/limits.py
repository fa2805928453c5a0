"""Every limit of the control plane, once. Milliseconds unless the name says otherwise."""

from typing import Final

#: A beat is sent every 200 ms; silence this long makes a node suspected ...
SILENCE_MS: Final = 2000
#: ... and this much more, with no second path that says otherwise, makes it lost.
CONFIRM_MS: Final = 1000
#: Connections of an agent and of all its workers that stay closed this long speak for a dead
#: node; a live one has its agent connected again sooner. So one reset costs no node.
CLOSED_MS: Final = 100
#: A new leader, or one that was cut off itself, gives every node this long to be heard again.
GRACE_MS: Final = 4000

#: From GenerationClosed to the last member's answer.
QUIESCE_MS: Final = 8000
#: From TransitionOrdered after a fault to the last MemberReady.
READY_MS: Final = 20000
#: From a planned TransitionOrdered to the last MemberReady: an iteration may lie between.
SWITCH_MS: Final = 60000
#: From WorkerStartOrdered to WorkerPrepared.
START_MS: Final = 90000
#: From WorkerStopOrdered to WorkerExited, beyond the order's grace.
STOP_MS: Final = 10000
#: From the plan that gives a worker's device to another task to the order to stop it: its task's
#: generation proves itself, and a planned switch goes by.
RELEASE_MS: Final = 90000
#: From PlanRequested to PlanSolved.
SOLVE_MS: Final = 20000

#: From the last rejected answer of the planner to another try.
REPLAN_MS: Final = 60000

#: A task whose members all stand still for this many iterations, and at least so long, hangs.
STALL_ITERATIONS: Final = 3
STALL_MS: Final = 1000
#: While a member has no iteration behind it, nor two of the task have been timed.
FIRST_STEP_MS: Final = 30000
#: A worker's place is judged only while its agent has told of it within this time.
BEAT_FRESH_MS: Final = 800
#: A worker that takes more than this share of the others' time over so many iterations is slow ...
SLOW_PERCENT: Final = 150
SLOW_ITERATIONS: Final = 5
#: ... until it takes less than this.
SLOW_OVER_PERCENT: Final = 120

#: Orders that nobody has confirmed are said again this often.
RESEND_MS: Final = 1000

#: Attempts in place (SEV3) in a row that may come to nothing before the next break climbs.
REATTEMPTS_MAX: Final = 2
#: The same failure of the same worker climbs a level unless it trained this many iterations in
#: between.
SIGNATURE_MEMORY_ITERATIONS: Final = 3
#: So many times in a row on a node that can't be spared, and its device is given up.
SAME_FAILURES_MAX: Final = 5
#: Generations that faults may cost a task before it is given up.
FAULT_GENERATIONS_MAX: Final = 100
#: Answers of the planner that may be rejected in a row before the local answer stays.
PLAN_FAILURES_MAX: Final = 3
#: Devices of one node that are planned with; an agent that claims more isn't believed.
NODE_DEVICES_MAX: Final = 64
#: Earlier lives of one source that are remembered, to tell a late fact from a new life.
PAST_INCARNATIONS_MAX: Final = 16

#: Expected run until the next failure, for the plan's objective.
EXPECTED_RUN_MS: Final = 24 * 3600 * 1000
#: What a transition costs a task, until so many have been measured ...
TRANSITION_MS: Final = 2000
TRANSITIONS_ENOUGH: Final = 3
#: ... of which so many are kept; none counts for more than this.
TRANSITIONS_MAX: Final = 5
TRANSITION_MAX_MS: Final = 600_000

#: An iteration's time is measured over so long at least, since beats come every 200 ms.
MEASURE_MS: Final = 4000
#: Told once so many such times agree; of as many as this, the newest.
MEASURES_ENOUGH: Final = 5
MEASURES_MAX: Final = 15
#: Told again when it differs from what was told by so many percent (and by more than its spread).
MEASURED_ANEW_PERCENT: Final = 10
#: One task's times are told no more often.
MEASURED_AGAIN_MS: Final = 60_000
#: Layouts and kinds of device of which a task's times are kept: the newest.
STEP_TIMES_MAX: Final = 8
#: Nobody believes an iteration that takes longer (35 years) ...
STEP_US_MAX: Final = 2**50
#: ... nor a task that is so many times faster or slower than its size, beside the other tasks.
MEASURED_FACTOR_MAX: Final = 100
#: A task that turns out so much faster or slower beside the others calls for a plan, percent.
MEASURED_REPLAN_PERCENT: Final = 25
#: Grace of a worker whose task has ended.
STOP_GRACE_MS: Final = 3000
