"""Machines in one computer: network namespaces, each with a slow link to a bridge.

Namespaces are unnamed here. A namespace exists while a process is in it. All these
processes are in a PID namespace that ends with its first process. So nothing remains,
however that process ends. The bandwidth and latency of a link are measured like iperf3
and ping do.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from harness.errors import HarnessError
from lockstep.errors import UnsupportedError, sentence

INTERFACE = "eth0"
"""The interface of every machine."""

MEMORY = "/dev/shm"

SHAPE = "burst 32kb latency 1s"
"""The largest burst, and the longest wait of a packet before it is dropped."""

SECONDS_OF_TRIAL = 60.0

TRIAL = f"""
from {__name__} import Network, mount_memory
mount_memory()
Network().slow_down(1)
"""
"""A program that must work in separate namespaces."""


def require_machines() -> None:
    """Raise unless this computer allows machines and slow links.

    Raises:
        UnsupportedError: it does not allow them, or a tool is missing.
    """
    command = isolated([sys.executable, "-c", TRIAL])
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS_OF_TRIAL
        )
        lacking = _last_line(done) if done.returncode else ""
    except (OSError, subprocess.TimeoutExpired) as error:
        lacking = str(error)
    if lacking:
        expected = "Linux that allows network namespaces and slow links (tbf)"
        remedy = "run it as root on Linux, with iproute2 and util-linux"
        raise UnsupportedError(sentence("slow_link", expected, lacking, remedy))


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
    _run_inside(os.getpid(), f"mount -t tmpfs none {MEMORY}")
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
        _run_inside(self._middle, "ip link add bridge type bridge")
        _run_inside(self._middle, "ip link set bridge up")
        self.machines: list[int] = []
        self._connect(os.getpid())

    def add(self) -> int:
        """Add a machine; return its number."""
        self._connect(_namespace())
        return len(self.machines) - 1

    def slow_down(self, mbit: float) -> None:
        """Limit each link to ``mbit`` megabits per second in each direction."""
        shape = f"tbf rate {round(1e6 * mbit)}bit {SHAPE}"
        for number, machine in enumerate(self.machines):
            ends = (machine, INTERFACE), (self._middle, f"port{number}")
            for process, name in ends:
                _run_inside(process, f"tc qdisc replace dev {name} root {shape}")

    def _connect(self, process: int) -> None:
        """Link the namespace of a process to the bridge."""
        number = len(self.machines)
        # Packets have the size of packets on a wire, so headers are counted.
        up = "gso_max_segs 1 up"
        port, peer = f"port{number}", f"peer name {INTERFACE} netns {process}"
        _run_inside(self._middle, f"ip link add {port} type veth {peer}")
        _run_inside(self._middle, f"ip link set {port} {up} master bridge")
        _run_inside(process, f"ip addr add {address(number)}/24 dev {INTERFACE}")
        _run_inside(process, f"ip link set {INTERFACE} {up}")
        _run_inside(process, "ip link set lo up")
        self.machines.append(process)


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


def _run_inside(process: int, command: str) -> None:
    """Run a command in the network namespace of a process; raise if it fails."""
    words = inside(process, command.split())
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        raise HarnessError(f"{command}: {_last_line(done)}")


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


# -- the link --------------------------------------------------------------------------

TRIPS = 20
"""The number of round trips of one byte; their median is used."""

BYTES = 2_500_000
"""The bytes that are sent to measure the bandwidth."""

PATIENCE = 60.0
"""The seconds that a measurement waits for the other machine."""


class Link(NamedTuple):
    """A link from one machine to another.

    Attributes:
        bandwidth: bytes per second that a program can send.
        latency: seconds, one way.
    """

    bandwidth: float
    latency: float


def answer(host: str) -> tuple[str, int]:
    """Answer one :func:`measure` of another machine; return this server's address."""
    server = socket.create_server((host, 0))
    threading.Thread(target=_answer, args=(server,), daemon=True).start()
    name, port = server.getsockname()[:2]
    return name, port


def _answer(server: socket.socket) -> None:
    with server:
        connection, _ = server.accept()
    with connection, connection.makefile("rb") as received:
        for count in [1] * TRIPS + [BYTES]:
            if len(received.read(count)) < count:
                return  # The other side has closed and reports the error.
            connection.sendall(b".")


def measure(host: str, port: int) -> Link:
    """Measure the link to the address of an :func:`answer`."""
    with socket.create_connection((host, port), PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def seconds(content: bytes) -> float:
            """Return the seconds to send ``content`` and receive its confirmation."""
            begin = time.perf_counter()
            connection.sendall(content)
            connection.recv(1)
            return time.perf_counter() - begin

        trip = median(seconds(b".") for _ in range(TRIPS))
        transfer = seconds(bytes(BYTES))
    return Link(bandwidth=BYTES / (transfer - trip), latency=trip / 2)
