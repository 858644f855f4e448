"""A Ray cluster of one machine: a head without a core, and nodes with one core each.

``python -m harness.runs.tests.nodes FOLDER`` does the runs of ``FOLDER/tiny.toml`` on
two nodes, ends one of them in the middle, and prints as JSON what became of the sweep.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.declarations import declare
from harness.processes import cluster
from harness.processes.cluster import NodeLostError, RemoteChild
from harness.runs import run
from harness.runs.tests.processes import descendants_of

SECONDS = 120.0
"""How long a node or a worker may take until it is there."""

STARTED = "Ray runtime started"

VARIABLES = {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    # Tests of one node switch it off for their whole process, whose child this may be.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1",
}


class Nodes:
    """Ray's processes, each node in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._groups: list[subprocess.Popen[bytes]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"

    def add_head(self) -> None:
        """Start the head, which has no core for runs."""
        options = ["--num-cpus=0", f"--port={self.address.split(':')[1]}"]
        options += ["--include-dashboard=false", f"--temp-dir={self._folder / 'head'}"]
        self._start("--head", *options)

    def add(self) -> None:
        """Start a node with one core."""
        self._start(f"--address={self.address}", "--num-cpus=1")

    def _start(self, *options: str) -> None:
        """Start a node and wait until it says so: two at once may take one port."""
        common = ["--node-ip-address=127.0.0.1", "--object-store-memory=80000000"]
        ray = str(Path(sys.executable).with_name("ray"))
        command = [ray, "start", "--block", *common, *options]
        path = self._folder / f"{len(self._groups)}.log"
        with path.open("wb") as log:
            self._groups.append(
                subprocess.Popen(command, stdout=log, stderr=log, process_group=0)
            )
        deadline = time.monotonic() + SECONDS
        while STARTED not in path.read_text():
            if time.monotonic() > deadline:
                raise TimeoutError(path.read_text())
            time.sleep(0.1)

    def kill(self, number: int) -> None:
        """Kill a node and what runs there, as if its machine were gone: 0 is the head.

        A worker of Ray is in another process group, and answers a while without a node.
        """
        leader = self._groups[number].pid
        for pid in descendants_of(leader):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(leader, signal.SIGKILL)

    def kill_all(self) -> None:
        """Kill every node."""
        for number in range(len(self._groups)):
            self.kill(number)


@contextmanager
def head() -> Iterator[Nodes]:
    """A cluster of a head alone, to which nodes can be added."""
    os.environ.update(VARIABLES)
    # The paths of Ray's sockets have to be short.
    with tempfile.TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as path:
        nodes = Nodes(Path(path))
        try:
            nodes.add_head()
            yield nodes
        finally:
            nodes.kill_all()


def loopback_only() -> list[str]:
    """What to put before a command so that it has no network but its own loopback."""
    unshare = shutil.which("unshare")
    command = [unshare or "", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if unshare is None or subprocess.run([*command, "true"], check=False).returncode:
        return []
    return command


def sweep_and_lose_a_node(folder: Path) -> dict[str, Any]:
    """Do a sweep on two nodes; kill one while both do their first run."""
    experiment = declare.read(folder / "tiny.toml")
    both, lost = threading.Barrier(2, timeout=SECONDS), []
    calls = Counter[RemoteChild]()
    receive, start = RemoteChild.receive, RemoteChild.__init__

    def start_or_note(child: RemoteChild, *arguments: Any) -> None:
        try:
            start(child, *arguments)
        except NodeLostError as error:
            lost.append(str(error))
            raise

    def receive_or_kill(child: RemoteChild) -> str | None:
        """The first line is an introduction, the second the answer to a run."""
        calls[child] += 1
        if calls[child] == 2 and not lost:
            if both.wait() == 0:
                nodes.kill(2)
                # Its core does not come back, however long one waits.
                cluster.SECONDS_FOR_A_CORE = 5.0
            both.wait()
        try:
            return receive(child)
        except NodeLostError as error:
            lost.append(str(error))
            raise

    RemoteChild.__init__, RemoteChild.receive = start_or_note, receive_or_kill
    with head() as nodes:
        nodes.add()
        nodes.add()
        request = run.Request("quick", root=folder, jobs=2, cluster=nodes.address)
        (report,) = run.sweep([experiment], request)
    return {"report": str(report), "lost": lost}


if __name__ == "__main__":
    print(json.dumps(sweep_and_lose_a_node(Path(sys.argv[1]))))
