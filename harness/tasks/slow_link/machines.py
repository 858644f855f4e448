"""Machines in one computer: network namespaces, each with a slow link to a bridge.

Namespaces are unnamed here. A namespace exists while a process is in it. All these
processes are in a PID namespace that ends with its first process. So nothing remains,
however that process ends.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from harness.errors import HarnessError
from harness.tasks.worker_team.measurement import sent_bytes
from lockstep.errors import UnsupportedError, sentence

__all__ = [
    "INTERFACE",
    "Network",
    "address",
    "inside",
    "isolated",
    "mount_memory",
    "require_machines",
]

INTERFACE, BRIDGE = "eth0", "bridge"
"""The interface of every machine, and the name of the bridge between them."""

MEMORY = "/dev/shm"

TOOLS = ("unshare", "nsenter", "mount", "ip", "tc")

SHAPE = ("burst", "32kb", "latency", "1s")
"""The largest burst, and the longest wait of a packet before it is dropped."""

TRIAL = (
    "ip link add name bridge type bridge",
    "ip link add name one type veth peer name other",
    "ip link set dev one gso_max_segs 1",
    f"tc qdisc replace dev one root tbf rate 1mbit {' '.join(SHAPE)}",
    f"mount -t tmpfs none {MEMORY}",
)
"""Commands that must work in separate namespaces."""

SECONDS_OF_TRIAL = 20.0


def require_machines() -> None:
    """Raise unless this computer allows machines and slow links.

    Raises:
        UnsupportedError: it does not allow them, or a tool is missing.
    """
    if lacking := _lacking():
        expected = "Linux that allows network namespaces and slow links (tbf)"
        remedy = "run it as root on Linux, with iproute2 and util-linux"
        raise UnsupportedError(sentence("slow_link", expected, lacking, remedy))


def _lacking() -> str:
    """Return why machines are not possible here; empty if they are possible."""
    if sys.platform != "linux":
        return str(sys.platform)
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"none of {', '.join(missing)}"
    command = isolated(["sh", "-ec", "\n".join(TRIAL)])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_OF_TRIAL
        )
    except subprocess.TimeoutExpired:
        return f"no answer in {SECONDS_OF_TRIAL:g} s"
    return "" if done.returncode == 0 else _last_line(done)


def isolated(command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command`` in separate namespaces.

    It sees no network and no other process, and its child processes end with it.
    """
    # Other users than root can be root in a user namespace, if the computer allows it.
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    kinds = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *user, *kinds, "--", *command]


def mount_memory() -> Path:
    """Mount memory for files that are removed with this process; return its path."""
    _do("mount", "-t", "tmpfs", "none", MEMORY)
    return Path(MEMORY)


def inside(process: int, command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command`` in the network namespace of a process."""
    return ["nsenter", f"--net=/proc/{process}/ns/net", *command]


def address(machine: int) -> str:
    """Return the IP address of a machine by its number."""
    return f"10.77.0.{machine + 1}"


class Network:
    """A bridge with one link to each machine; this process is on machine 0.

    Attributes:
        machines: the id of a process in the namespace of each machine.
    """

    def __init__(self) -> None:
        self._middle = _namespace()
        _do_inside(self._middle, f"ip link add name {BRIDGE} type bridge")
        _do_inside(self._middle, f"ip link set dev {BRIDGE} up")
        self.machines: list[int] = []
        self._connect(os.getpid())

    def add(self) -> int:
        """Add a machine; return its number."""
        self._connect(_namespace())
        return len(self.machines) - 1

    def slow_down(self, mbit: float) -> None:
        """Limit each link to ``mbit`` megabits per second in each direction."""
        for number, machine in enumerate(self.machines):
            ends = (machine, INTERFACE), (self._middle, _port(number))
            for process, name in ends:
                shape = f"tbf rate {round(1e6 * mbit)}bit {' '.join(SHAPE)}"
                _do_inside(process, f"tc qdisc replace dev {name} root {shape}")

    def sent_bytes(self, machine: int) -> int:
        """Return the bytes that a machine has sent, including headers."""
        counters = Path(f"/proc/{self.machines[machine]}/net/dev")
        count = sent_bytes(counters, INTERFACE)
        if count is None:
            raise HarnessError(f"nobody counts the bytes of machine {machine}.")
        return count

    def _connect(self, process: int) -> None:
        number, middle = len(self.machines), self._middle
        port = _port(number)
        ends = f"name {port} type veth peer name {INTERFACE} netns {process}"
        _do_inside(middle, f"ip link add {ends}")
        _do_inside(process, f"ip addr add {address(number)}/24 dev {INTERFACE}")
        _do_inside(process, "ip link set dev lo up")
        for where, name in ((process, INTERFACE), (middle, port)):
            # Packets have the size of packets on a wire, so headers are counted.
            _do_inside(where, f"ip link set dev {name} gso_max_segs 1 up")
        _do_inside(middle, f"ip link set dev {port} master {BRIDGE}")
        self.machines.append(process)


def _port(machine: int) -> str:
    """Return the name of the bridge's interface for a machine's link."""
    return f"port{machine}"


def _namespace() -> int:
    """Return the id of a new process in a new network namespace."""
    command = ["unshare", "--net", "--", "sh", "-c", "echo; exec sleep infinity"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    # The process writes a line when its namespace exists.
    process.stdout.readline()
    return process.pid


def _do_inside(process: int, command: str) -> None:
    _do(*inside(process, command.split()))


def _do(*command: str) -> None:
    """Run a command; raise its error message if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise HarnessError(f"{' '.join(command)}: {_last_line(done)}")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"
