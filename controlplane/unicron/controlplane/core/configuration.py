"""What is configured for the whole cluster: does it make sense, and its fold."""

import hashlib
from collections.abc import Iterator
from typing import Final

import msgspec

from unicron.controlplane.core import limits
from unicron.controlplane.core.admission import NAME_MAX
from unicron.controlplane.core.change import replace, want_plan
from unicron.controlplane.core.state import ClusterState
from unicron.events import ClusterConfigured, Planning, Sequence
from unicron.planner.errors import BadProblem
from unicron.planner.problem import PlanProblem, TenantQuota
from unicron.planner.validation import EXACT_MAX, validate

#: Of one device. Ten times the fastest there is, so that the planner's integers stay exact.
GFLOPS_MAX: Final = 10_000_000
#: Of a link that is given: one that is slower moves no state in any time.
LINK_MIN: Final = 1_000_000
LINK_MAX: Final = 2**50
#: Of all of it as JSON: it is one event, of which servers take 1 MiB if they aren't told otherwise.
BYTES_MAX: Final = 512 * 1024
#: Of one node, if it is given: whoever fails more often doesn't train.
MTBF_MIN_MS: Final = 60_000


def configured(state: ClusterState, at: Sequence, body: ClusterConfigured) -> ClusterState | None:
    """It calls for a plan. None (void) if it changes nothing, or makes no sense."""
    if body.planning == state.planning or fault_of(body.planning):
        return None
    changed = replace(state, planning=body.planning)
    return want_plan(changed, at, f"{body.by} has configured the cluster")


def digest_of(planning: Planning) -> str:
    """SHA-256 of its canonical JSON, in hexadecimal."""
    return hashlib.sha256(msgspec.json.encode(planning, order="deterministic")).hexdigest()


def quotas_of(planning: Planning) -> tuple[TenantQuota, ...]:
    """The quotas, as the planner's problem has them."""
    return tuple(
        TenantQuota(tenant=q.tenant, max_devices=q.max_devices, kind=q.kind)
        for q in planning.quotas
    )


def fault_of(planning: Planning) -> str:
    """Which value makes no sense, and what to do; or ""."""
    seen: set[str] = set()
    for i, device in enumerate(planning.devices):
        if not device.kind or device.kind in seen:
            why = "is there twice" if device.kind else "is empty"
            return f"devices[{i}].kind {why}: name each kind of device once"
        seen.add(device.kind)
    for name, value, least, most in _ranges(planning):
        if value and not least <= value <= most:
            return f"{name} is {value}: give an integer from {least} to {most}, or 0"
    for i, quota in enumerate(planning.quotas):
        # A tenant that no task can name would be a limit that holds nobody.
        if not (quota.tenant.isprintable() and len(quota.tenant) <= NAME_MAX):
            shown = ascii(quota.tenant[:NAME_MAX])
            fix = f"give a name of at most {NAME_MAX} printable characters"
            return f"quotas[{i}].tenant is {shown}: {fix}"
    try:
        validate(_problem(planning))
    except BadProblem as error:
        return f"{error.field} {error.reason}: {error.fix}"
    if planning.repair_ms and planning.repair_ms >= planning.node_mtbf_ms:
        return (
            f"repair_ms is {planning.repair_ms}, and node_mtbf_ms {planning.node_mtbf_ms}: "
            "give how long a node runs on average between two failures, longer than a repair takes"
        )
    if (size := len(msgspec.json.encode(planning))) > BYTES_MAX:
        return f"quotas and devices take {size} bytes: give fewer, up to {BYTES_MAX} bytes"
    return ""


def _ranges(planning: Planning) -> Iterator[tuple[str, int, int, int]]:
    """Name, value, least and largest; 0 stands for nothing said."""
    for i, device in enumerate(planning.devices):
        yield f"devices[{i}].gflops", device.gflops, 1, GFLOPS_MAX
        yield f"devices[{i}].link_bytes_per_s", device.link_bytes_per_s, LINK_MIN, LINK_MAX
    yield "link_bytes_per_s", planning.link_bytes_per_s, LINK_MIN, LINK_MAX
    yield "node_mtbf_ms", planning.node_mtbf_ms, MTBF_MIN_MS, EXACT_MAX


def _problem(planning: Planning) -> PlanProblem:
    """The planner's rules for what it gets as it stands."""
    return PlanProblem(
        computed_at=0,
        nodes=(),
        tasks=(),
        expected_run_ms=limits.EXPECTED_RUN_MS,
        quotas=quotas_of(planning),
        node_mtbf_ms=planning.node_mtbf_ms,
        repair_ms=planning.repair_ms,
        link_bytes_per_s=planning.link_bytes_per_s,
    )
