"""Old logs, read again: fold, decide again and compare; incidents and their stories.

Pure: everything here is a function of the entries of a log. No network, no clock, no solver.
"""

from unicron.controlplane.replay.chain import CauseChain
from unicron.controlplane.replay.cluster import ClusterView, IdStatus
from unicron.controlplane.replay.divergence import Divergence, ReplayDivergence
from unicron.controlplane.replay.export import export_history
from unicron.controlplane.replay.folding import Folding, SourceGap, Unread
from unicron.controlplane.replay.replayer import Replayer, ReplayReport, replay_once
from unicron.controlplane.replay.steps import IncidentSteps, RankStep, Step, Transition
from unicron.controlplane.replay.story import IncidentStory, StoryEvent
from unicron.controlplane.replay.summary import IncidentSummary
from unicron.controlplane.replay.views import IncidentBook

__all__ = [
    "CauseChain",
    "ClusterView",
    "Divergence",
    "Folding",
    "IdStatus",
    "IncidentBook",
    "IncidentSteps",
    "IncidentStory",
    "IncidentSummary",
    "RankStep",
    "ReplayDivergence",
    "ReplayReport",
    "Replayer",
    "SourceGap",
    "Step",
    "StoryEvent",
    "Transition",
    "Unread",
    "export_history",
    "replay_once",
]
