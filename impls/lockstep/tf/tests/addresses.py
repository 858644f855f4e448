"""Addresses on loopback for the processes of a cluster."""

from __future__ import annotations

import socket
from contextlib import ExitStack


def free_addresses(count: int) -> list[str]:
    """Return addresses with different ports that nobody uses."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
