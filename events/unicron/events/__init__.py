"""What can happen: event types, their envelope, the codec, the log's hash, history files.

Everything a program outside needs is importable from here; importing it sets up nothing.
"""

from unicron.events.advisory import ConnectionClosed, ConnectionOpened
from unicron.events.base import Decision, Event, Fact, Part
from unicron.events.beat import Beat, WorkerBeat
from unicron.events.chain import EMPTY_CHAIN, chain_of, extend_chain
from unicron.events.cluster import ClusterConfigured, DeviceSpeed, Planning, Quota
from unicron.events.codec import KNOWN_TAGS, decode, decode_beat, encode, encode_beat, record
from unicron.events.envelope import Basis, Envelope, Source, event_id
from unicron.events.errors import (
    ConfigError,
    DecodeError,
    LogBroken,
    LogError,
    LogMismatch,
    LogTooOld,
    LogUnreachable,
    UnicronError,
)
from unicron.events.facts import FactsDropped, KindCount
from unicron.events.history import (
    HistoryHeader,
    Seal,
    StateDigest,
    write_history,
    write_history_to,
)
from unicron.events.history_reader import History, HistoryReader, read_history
from unicron.events.ids import (
    ClusterId,
    Generation,
    Incarnation,
    IncidentId,
    NodeId,
    Sequence,
    TaskId,
    Term,
    WorkerId,
    node_of,
    worker_id,
)
from unicron.events.incident import IncidentEscalated, IncidentOpened, IncidentResolved
from unicron.events.leadership import AlarmRaised, DeadlinePassed, LeadershipTaken
from unicron.events.member import MemberCommitted, MemberFinished, MemberQuiesced, MemberReady
from unicron.events.node import (
    AgentStarted,
    AgentStopped,
    NodeAdmitted,
    NodeIsolated,
    NodeLost,
    NodeRecovered,
    NodeReturned,
    NodeSuspected,
    StoreBound,
)
from unicron.events.plan import Allocation, PlanDecided, PlanDropped, PlanRequested, PlanSolved
from unicron.events.recorded import Entry, Recorded, UndecodableEvent, UnknownEvent
from unicron.events.task import (
    GPTSpec,
    OptimizerSpec,
    TaskCompleted,
    TaskFailed,
    TaskMeasured,
    TaskSpec,
    TaskStalled,
    TaskSubmitted,
)
from unicron.events.transition import (
    GenerationClosed,
    OrderedMember,
    TransitionCompleted,
    TransitionOrdered,
)
from unicron.events.union import AnyDecision, AnyEvent, AnyFact
from unicron.events.upcast import Upcasters
from unicron.events.worker import (
    ExceptionReported,
    LongText,
    PeerErrorReported,
    WorkerExited,
    WorkerPrepared,
    WorkerSlow,
    WorkerStarted,
    WorkerStartFailed,
    WorkerStartOrdered,
    WorkerStopOrdered,
)

__all__ = [  # noqa: RUF022 - grouped for the reader, not sorted
    # Bases and unions
    "Event",
    "Fact",
    "Decision",
    "Part",
    "AnyEvent",
    "AnyFact",
    "AnyDecision",
    # Facts
    "AgentStarted",
    "AgentStopped",
    "StoreBound",
    "ConnectionOpened",
    "ConnectionClosed",
    "WorkerStarted",
    "WorkerStartFailed",
    "WorkerPrepared",
    "WorkerExited",
    "PeerErrorReported",
    "ExceptionReported",
    "MemberQuiesced",
    "MemberReady",
    "MemberCommitted",
    "MemberFinished",
    "FactsDropped",
    # Decisions
    "LeadershipTaken",
    "DeadlinePassed",
    "AlarmRaised",
    "ClusterConfigured",
    "TaskSubmitted",
    "TaskCompleted",
    "TaskFailed",
    "TaskStalled",
    "TaskMeasured",
    "NodeSuspected",
    "NodeRecovered",
    "NodeLost",
    "NodeIsolated",
    "NodeAdmitted",
    "NodeReturned",
    "IncidentOpened",
    "IncidentEscalated",
    "IncidentResolved",
    "PlanRequested",
    "PlanSolved",
    "PlanDecided",
    "PlanDropped",
    "WorkerStartOrdered",
    "WorkerStopOrdered",
    "WorkerSlow",
    "GenerationClosed",
    "TransitionOrdered",
    "TransitionCompleted",
    # Values inside events
    "Allocation",
    "DeviceSpeed",
    "GPTSpec",
    "KindCount",
    "OptimizerSpec",
    "OrderedMember",
    "Planning",
    "Quota",
    "TaskSpec",
    # Envelope
    "Basis",
    "Envelope",
    "Source",
    "event_id",
    # Identifiers
    "ClusterId",
    "Generation",
    "IncidentId",
    "Incarnation",
    "NodeId",
    "Sequence",
    "TaskId",
    "Term",
    "WorkerId",
    "node_of",
    "worker_id",
    # Beside the log
    "Beat",
    "WorkerBeat",
    "decode_beat",
    "encode_beat",
    # Codec
    "KNOWN_TAGS",
    "Upcasters",
    "decode",
    "encode",
    "record",
    # Entries of a log, their hash, history files
    "EMPTY_CHAIN",
    "Entry",
    "History",
    "HistoryHeader",
    "HistoryReader",
    "Recorded",
    "Seal",
    "StateDigest",
    "UndecodableEvent",
    "UnknownEvent",
    "chain_of",
    "extend_chain",
    "read_history",
    "write_history",
    "write_history_to",
    # Errors
    "ConfigError",
    "DecodeError",
    "LogBroken",
    "LogError",
    "LogMismatch",
    "LogTooOld",
    "LogUnreachable",
    "LongText",
    "UnicronError",
]
