"""The folder of an embedded control plane with a server of its own."""

import asyncio
import socket

import pytest

from tests.cli.conftest import Cli
from unicron import controlplane as cp
from unicron import events as ev


@pytest.mark.real
async def test_its_data_folder_is_its_own_and_is_read_by_its_name(tmp_path):
    """Two servers on one store would destroy the log."""
    async with cp.ControlPlane("c", data=tmp_path) as plane:
        with pytest.raises(ev.ConfigError, match="another control plane runs on") as raised:
            async with cp.ControlPlane("c", data=tmp_path):
                pytest.fail("it can't be entered")
        assert raised.value.code == "E-DATA-IN-USE"
        told = await asyncio.to_thread(Cli().json, "status", "--log", str(tmp_path))
        assert told["leader"] == plane.leadership.leader
        address = plane.agents_url
        assert (tmp_path / "nodes.url").read_text().strip() == address
    with pytest.raises(ev.ConfigError) as raised:
        async with cp.ControlPlane("d", data=tmp_path):
            pytest.fail("it can't be entered")
    assert raised.value.code == "E-DATA-CLUSTER"
    async with cp.ControlPlane("c", data=tmp_path, instance="next") as plane:
        assert plane.leadership.leader == "next"
        assert plane.agents_url == address


@pytest.mark.real
async def test_it_takes_another_port_if_that_of_last_time_is_taken(tmp_path):
    async with cp.ControlPlane("c", data=tmp_path):
        pass
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        (tmp_path / "port").write_text(str(port))
        async with cp.ControlPlane("c", data=tmp_path) as plane:
            assert not plane.agents_url.endswith(f":{port}")
