"""The bandwidth and latency of a link, measured like iperf3 and ping."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import NamedTuple

__all__ = ["Link", "answering", "measure"]

TRIPS = 20
"""The number of round trips of one byte; their median is used."""

BYTES = 2_500_000
"""The bytes that are sent to measure the bandwidth."""

PATIENCE = 60.0
"""The timeout of a wait for the other side, in seconds."""

Address = tuple[str, int]


class Link(NamedTuple):
    """A link from one machine to another.

    Attributes:
        bandwidth: bytes per second that a program can send.
        latency: seconds, one way.
    """

    bandwidth: float
    latency: float


@contextmanager
def answering(host: str) -> Iterator[Address]:
    """Answer one :func:`measure` of another machine; yield this server's address."""
    with socket.create_server((host, 0)) as server:
        server.settimeout(PATIENCE)
        thread = threading.Thread(target=_answer, args=(server,))
        thread.start()
        try:
            yield server.getsockname()[:2]
        finally:
            thread.join()


def measure(place: Address) -> Link:
    """Measure the link to the address of an :func:`answering` machine."""
    with socket.create_connection(place, PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        trip = median(_seconds(connection, b".") for _ in range(TRIPS))
        transfer = _seconds(connection, bytes(BYTES))
    return Link(bandwidth=BYTES / (transfer - trip), latency=trip / 2)


def _answer(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.settimeout(PATIENCE)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for count in [1] * TRIPS + [BYTES]:
            while count > 0:
                received = len(connection.recv(min(count, 1 << 16)))
                if not received:
                    return  # The other side has closed and reports the error.
                count -= received
            connection.sendall(b".")


def _seconds(connection: socket.socket, content: bytes) -> float:
    """Return the seconds to send ``content`` and receive its confirmation."""
    begin = time.perf_counter()
    connection.sendall(content)
    connection.recv(1)
    return time.perf_counter() - begin
