"""Hosts on a switch: network namespaces joined by a bridge, on which a test cuts and loses packets.

Nothing of it is reachable from outside, and nothing outside from it. Names carry the pid of whoever
made them; what a killed run left is removed by the next one.
"""

import contextlib
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess

_PREFIX = "unicron-net"
_CLONE_NEWNET = 0x40000000
_MISSING = "{} is not installed (Debian and Ubuntu: apt install iproute2 nftables)"


class NotPermitted(Exception):
    """This machine gives us no namespaces, or lacks the tools."""


class Network:
    """`hosts` by name, at 10.77.0.1 and so on. Use as ``with``.

    Raises NotPermitted if there can be none here.
    """

    def __init__(self, hosts):
        self.hosts = {host: f"10.77.0.{number}" for number, host in enumerate(hosts, 1)}

    def __enter__(self):
        for tool in ("ip", "nft"):
            if shutil.which(tool) is None:
                raise NotPermitted(_MISSING.format(tool))
        if os.geteuid() != 0:
            raise NotPermitted("network namespaces are made by root only")
        _clear()
        try:
            self._build()
            self._rule("counter")
        except subprocess.CalledProcessError as error:
            _clear(os.getpid())
            raise NotPermitted(error.stderr.strip()) from None
        self.mend()
        return self

    def __exit__(self, *_):
        _clear(os.getpid())

    def _build(self):
        switch = _namespace("switch")
        _ip(f"netns add {_namespace(host)}" for host in ["switch", *self.hosts])
        _ip(["link add name br0 type bridge", "link set br0 up"], within=switch)
        for host, address in self.hosts.items():
            there = f"eth0 netns {_namespace(host)}"
            _ip([f"link add {there} type veth peer name {host} netns {switch}"])
            _ip([f"link set {host} master br0 up"], within=switch)
            plugged = [f"address add {address}/24 dev eth0", "link set eth0 up", "link set lo up"]
            _ip(plugged, within=_namespace(host))

    # --- Being there ------------------------------------------------------------------------------

    def command(self, host):
        """What goes before a command that is to run there."""
        return ("ip", "netns", "exec", _namespace(host))

    @contextlib.contextmanager
    def inside(self, host):
        """Sockets, threads and processes that this thread makes meanwhile are there."""
        before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{_namespace(host)}", os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(before)
        finally:
            os.close(there)
            os.close(before)

    # --- What happens to packets ------------------------------------------------------------------

    def cut(self, host, others=None):
        """Nothing passes between this host and the `others` (all if not given)."""
        for other in others or [""]:
            there = f'oifname "{other}" ' if other else ""
            here = f'iifname "{other}" ' if other else ""
            self._rule(f'iifname "{host}" {there}counter drop')
            self._rule(f'{here}oifname "{host}" counter drop')

    def lose(self, percent):
        """Of all packets so many are lost, by chance."""
        self._rule(f"numgen random mod 100 < {percent} counter drop")

    def mend(self):
        """All arrive again; how many had been dropped."""
        found = self.dropped
        self._nft("flush chain bridge cut forward")
        return found

    @property
    def dropped(self):
        """Packets dropped since the last mend."""
        said = json.loads(self._nft("list chain bridge cut forward", "-j"))
        rules = [part["rule"]["expr"] for part in said["nftables"] if "rule" in part]
        return sum(
            part["counter"]["packets"]
            for rule in rules
            if {"drop": None} in rule
            for part in rule
            if "counter" in part
        )

    def _rule(self, rule):
        self._nft(
            "add table bridge cut; "
            "add chain bridge cut forward { type filter hook forward priority 0; }; "
            f"add rule bridge cut forward {rule}"
        )

    def _nft(self, text, *options):
        return _run([*self.command("switch"), "nft", *options, text])


def _namespace(host):
    return f"{_PREFIX}-{os.getpid()}-{host}"


def _enter(descriptor):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, _CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _ip(commands, within=None):
    there = ["-n", within] if within else []
    _run(["ip", *there, "-batch", "-"], "\n".join(commands))


def _run(command, said=None):
    return subprocess.run(command, input=said, capture_output=True, text=True, check=True).stdout


def _clear(pid=None):
    """Remove the namespaces of `pid`, or those whose maker is gone, with the processes in them."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else ():
        found = re.fullmatch(rf"{_PREFIX}-(\d+)-\w+", name)
        if found is None or (int(found[1]) != pid if pid else _is_alive(int(found[1]))):
            continue
        with contextlib.suppress(subprocess.CalledProcessError):  # another run was quicker
            for inside in _run(["ip", "netns", "pids", name]).split():
                if int(inside) != os.getpid():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(inside), signal.SIGKILL)
            _run(["ip", "netns", "delete", name])


def _is_alive(pid):
    return os.path.isdir(f"/proc/{pid}")
