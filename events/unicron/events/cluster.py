"""The cluster as a whole: what people say about it that plans rest on."""

from unicron.events.base import Decision, Part


class Quota(Part, frozen=True, kw_only=True):
    """The tasks of `tenant` hold at most `max_devices` devices of `kind` ("": of all kinds)."""

    tenant: str
    max_devices: int
    kind: str = ""


class DeviceSpeed(Part, frozen=True, kw_only=True):
    """What one device of `kind` achieves, not its peak: `gflops` in GFLOP/s, `link_bytes_per_s` to
    other devices. 0: as the control plane assumes for that kind."""

    kind: str
    gflops: int = 0
    link_bytes_per_s: int = 0


class Planning(Part, frozen=True, kw_only=True):
    """What plans rest on besides nodes and tasks. 0 means that nobody has said.

    `node_mtbf_ms`: mean time between failures of one node; `repair_ms`: how long one is away.
    `link_bytes_per_s`: what a device receives training state with; 0: its kind's link.
    `measured_step_times`: what a running task is seen to take for an iteration counts for more
    than what was assumed of its devices.
    """

    quotas: tuple[Quota, ...] = ()
    devices: tuple[DeviceSpeed, ...] = ()
    node_mtbf_ms: int = 0
    repair_ms: int = 0
    link_bytes_per_s: int = 0
    measured_step_times: bool = True


class ClusterConfigured(Decision, frozen=True, kw_only=True, tag="cluster.configured.v1"):
    """Plans rest on this from here on, in place of what was configured before. `by`: whose
    configuration it is; `digest`: SHA-256 of its canonical JSON, in hexadecimal. Void if it says
    what is in force, or what makes no sense."""

    planning: Planning
    by: str
    digest: str
