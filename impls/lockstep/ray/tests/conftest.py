"""One Ray cluster for the tests of a process, on loopback, which needs a token."""

from __future__ import annotations

import os
import secrets
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest

import lockstep
from lockstep.ray import RayCenter

# Ray reads these when it is imported, and so do the processes that it starts.
os.environ |= {
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": secrets.token_hex(32),
    "RAY_USAGE_STATS_ENABLED": "0",
    # Of tasks that are killed on purpose.
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    # Without it Ray replaces 127.0.0.1 by the address of the machine.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
}
SOURCES = str(Path(lockstep.__file__).parents[1])

SECONDS = 240.0
"""How long a test may wait for a process."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise a TimeoutError in the main thread after so long, where signals exist."""
    if not hasattr(signal, "SIGALRM"):
        yield
        return

    def fail(*_: Any) -> NoReturn:
        raise TimeoutError(f"no answer for {seconds:g} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def limit() -> Iterator[None]:
    """Let a test fail that waits for a process which does not answer."""
    with time_limit(SECONDS):
        yield


@pytest.fixture(scope="package")
def ray() -> Iterator[Any]:
    """Start Ray, and end its processes after the last test."""
    module = pytest.importorskip("ray", reason="needs Ray: pip install ray")
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patched:
        warnings.simplefilter("ignore")
        # Its processes inherit this.
        patched.setenv("PYTHONPATH", os.pathsep.join([SOURCES, *sys.path]))
        module.init(
            address="local",
            _node_ip_address="127.0.0.1",
            include_dashboard=False,
            num_cpus=2,
            object_store_memory=80 << 20,
            log_to_driver=False,
            logging_level="ERROR",
        )
    yield module
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.shutdown()


@pytest.fixture
def address(ray: Any) -> str:
    """Return the address at which other processes connect."""
    found: str = ray.get_runtime_context().gcs_address
    return found


@pytest.fixture
def center(ray: Any, tmp_path: Path) -> Iterator[RayCenter]:
    """Name a center, and end its process after the test."""
    made = RayCenter(tmp_path.name, directory=tmp_path)
    yield made
    made.remove()
