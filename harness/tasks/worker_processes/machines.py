"""Machines in one computer: network namespaces, each with a slow link to a bridge.

The process that builds them is in namespaces of its own, of networks, mounts and
processes, which end with it. So nothing remains, however it ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import cache

from harness.errors import HarnessError
from lockstep.errors import UnsupportedError, sentence

INTERFACE = "eth0"
"""The interface of every machine."""

MEMORY = "/dev/shm"
"""Where files of a run are; they are gone with the process."""

SHAPE = "burst 32kb latency 1s"
"""The largest burst, and the longest wait of a packet before it is dropped."""

SECONDS_OF_TRIAL = 60.0


def isolated(command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command`` in separate namespaces.

    It sees no network and no other process. It ends with the process that starts it,
    and its child processes end with it.
    """
    # Other users than root can be root in a user namespace, if the computer allows it.
    user = [] if os.geteuid() == 0 else ["--map-root-user"]
    kinds = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    end = ["setpriv", "--pdeathsig", "KILL"]
    return [*end, "unshare", *user, *kinds, "--", *command]


@cache
def require_machines() -> None:
    """Raise unless this computer allows machines and slow links.

    Raises:
        UnsupportedError: it does not allow them, or a tool is missing.
    """
    trial = f"from {__name__} import build; build(1, 1)"
    command = isolated([sys.executable, "-c", trial])
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
        raise UnsupportedError(sentence("slow link", expected, lacking, remedy))


def build(machines: int, mbit: float) -> None:
    """Connect machines to a bridge; this process is on machine 0.

    Each link is limited to ``mbit`` megabits per second in each direction.
    """
    _run(f"mount -t tmpfs none {MEMORY}")
    _run("mount -t tmpfs none /run")  # where ip keeps the names of namespaces
    shape = f"root tbf rate {round(1e6 * mbit)}bit {SHAPE}"
    # Packets have the size of packets on a wire, so headers are counted.
    up = "gso_max_segs 1 up"
    _run("ip netns add middle")
    _run("ip -n middle link add bridge type bridge")
    _run("ip -n middle link set bridge up")
    for number in range(machines):
        port, namespace, at = f"port{number}", str(os.getpid()), ""
        if number:
            namespace = f"machine{number}"
            at = f"-n {namespace}"
            _run(f"ip netns add {namespace}")
        peer = f"peer name {INTERFACE} netns {namespace}"
        _run(f"ip -n middle link add {port} type veth {peer}")
        _run(f"ip -n middle link set {port} {up} master bridge")
        _run(f"ip {at} addr add {address(number)}/24 dev {INTERFACE}")
        _run(f"ip {at} link set {INTERFACE} {up}")
        _run(f"ip {at} link set lo up")
        _run(f"tc -n middle qdisc replace dev {port} {shape}")
        _run(f"tc {at} qdisc replace dev {INTERFACE} {shape}")


def address(machine: int) -> str:
    """Return the IP address of a machine by its number."""
    return f"10.77.0.{machine + 1}"


def on_machine(number: int, command: Sequence[str]) -> list[str]:
    """Return a command that runs ``command`` on a machine, not on machine 0."""
    return ["ip", "netns", "exec", f"machine{number}", *command]


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line of the errors of a command."""
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True)
    if done.returncode:
        raise HarnessError(f"{command}: {_last_line(done)}")
