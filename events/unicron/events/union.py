"""The closed union of all events: one line here for each type, in the order of the catalogue."""

from typing import TypeAlias

from unicron.events import (
    advisory,
    cluster,
    facts,
    incident,
    leadership,
    member,
    node,
    plan,
    task,
    transition,
    worker,
)

AnyFact: TypeAlias = (
    node.AgentStarted
    | node.AgentStopped
    | node.StoreBound
    | advisory.ConnectionOpened
    | advisory.ConnectionClosed
    | worker.WorkerStarted
    | worker.WorkerStartFailed
    | worker.WorkerPrepared
    | worker.WorkerExited
    | worker.PeerErrorReported
    | worker.ExceptionReported
    | member.MemberQuiesced
    | member.MemberReady
    | member.MemberCommitted
    | member.MemberFinished
    | facts.FactsDropped
)

AnyDecision: TypeAlias = (
    leadership.LeadershipTaken
    | leadership.DeadlinePassed
    | leadership.AlarmRaised
    | cluster.ClusterConfigured
    | task.TaskSubmitted
    | task.TaskCompleted
    | task.TaskFailed
    | task.TaskStalled
    | task.TaskMeasured
    | node.NodeSuspected
    | node.NodeRecovered
    | node.NodeLost
    | node.NodeIsolated
    | node.NodeAdmitted
    | node.NodeReturned
    | incident.IncidentOpened
    | incident.IncidentEscalated
    | incident.IncidentResolved
    | plan.PlanRequested
    | plan.PlanSolved
    | plan.PlanDecided
    | plan.PlanDropped
    | worker.WorkerStartOrdered
    | worker.WorkerStopOrdered
    | worker.WorkerSlow
    | transition.GenerationClosed
    | transition.TransitionOrdered
    | transition.TransitionCompleted
)

AnyEvent: TypeAlias = AnyFact | AnyDecision
