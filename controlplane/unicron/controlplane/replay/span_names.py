"""Names of spans, attributes and metrics: the one place that spells them (docs/telemetry.md).

Names of spans are few, so that tracing tools can group by them; which rank it was is an attribute.
"""

from typing import Final

#: What instruments the spans, as OpenTelemetry calls it.
SCOPE: Final = "unicron.controlplane"
SERVICE: Final = "unicron-controlplane"

# --- Spans ---------------------------------------------------------------------------------------

ROOT: Final = "incident"
#: A rank's part of a step: ``regroup.rank``. Steps have their own names (steps.NAMES).
RANK_SUFFIX: Final = ".rank"

# --- Attributes ----------------------------------------------------------------------------------

CLUSTER: Final = "unicron.cluster"
LOG_BIRTH: Final = "unicron.log.birth"
INCIDENT: Final = "unicron.incident.id"
SEVERITY: Final = "unicron.incident.severity"
WHAT: Final = "unicron.incident.what"
OUTCOME: Final = "unicron.incident.outcome"
OPEN: Final = "unicron.incident.open"
EVENTS_LEFT_OUT: Final = "unicron.incident.events_left_out"
TASK: Final = "unicron.task"
NODE: Final = "unicron.node"
WORKER: Final = "unicron.worker"
INCARNATION: Final = "unicron.worker.incarnation"
RANK: Final = "unicron.rank"
GENERATION: Final = "unicron.generation"
TRANSITION: Final = "unicron.transition"
PLANNED: Final = "unicron.transition.planned"
STEP: Final = "unicron.step"
STATE: Final = "unicron.step.state"
RESULT: Final = "unicron.step.result"
HOW: Final = "unicron.rank.how"
ITERATION: Final = "unicron.iteration"
KEPT: Final = "unicron.micro_batches.kept"
OWED: Final = "unicron.micro_batches.owed"
STATE_FROM: Final = "unicron.transfer.from_rank"
RECEIVED: Final = "unicron.transfer.bytes"
UNBLOCK_MS: Final = "unicron.measured.unblock_ms"
REGROUP_MS: Final = "unicron.measured.regroup_ms"
TRANSFER_MS: Final = "unicron.measured.transfer_ms"
SEQUENCE: Final = "unicron.sequence"
FIRST_SEQUENCE: Final = "unicron.sequence.first"
LAST_SEQUENCE: Final = "unicron.sequence.last"
CAUSES: Final = "unicron.sequence.causes"
PHRASE: Final = "unicron.event.what"
WHO: Final = "unicron.event.who"
CAUSE_TYPE: Final = "unicron.cause"
PLAN_SOURCE: Final = "unicron.plan.source"

# --- Metrics -------------------------------------------------------------------------------------

WAF_NOW: Final = "unicron.waf.now"
WAF_BEST: Final = "unicron.waf.best"
DOWNTIME: Final = "unicron.downtime"
DETECT_TIME: Final = "unicron.detect.duration"
PLAN_TIME: Final = "unicron.plan.duration"
TRANSITION_TIME: Final = "unicron.transition.duration"
SOLVER_TIME: Final = "unicron.solver.duration"
LEADING: Final = "unicron.leading"
LOG_LAG: Final = "unicron.log.lag"
LOOP_LAG: Final = "unicron.loop.lag"
SPOOL_DEPTH: Final = "unicron.spool.depth"
SPOOL_DEEPEST: Final = "unicron.spool.depth.max"
TRACES_DROPPED: Final = "unicron.traces.dropped"
