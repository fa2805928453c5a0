"""Paths in docs/architecture.md lead to files, read as its table says."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_OURS = "controlplane/unicron/controlplane"
_BELOW = {
    **{name: f"{name}/unicron" for name in ("planner", "worker_shim", "events")},
    **dict.fromkeys(("core", "replay", "runtime", "embed", "local", "testing", "cli"), _OURS),
    "megatron": "worker_shim/unicron/worker_shim",
    "tests": "",
    "docs": "",
}


def test_paths_of_the_architecture_lead_to_files():
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    below = "|".join(_BELOW)
    named = re.findall(rf"`((?:{below})/(?!unicron/)[\w*./-]+)`", text)
    assert len(named) > 20
    missing = [
        path
        for path in named
        if not [*(ROOT / _BELOW[path.partition("/")[0]]).glob(path.rstrip("/"))]
    ]
    assert missing == []
    others = re.findall(r"`([\w-]+)/[\w*./-]*\.py`", text)
    assert {*others} <= _BELOW.keys()
