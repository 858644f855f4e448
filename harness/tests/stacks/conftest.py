"""The driver of each backend on which stacks are built."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.parity import drivers
from harness.parity.drivers.protocol import Driver
from lockstep import registry

BACKENDS = ("reference", "pytorch", "tf eager", "tf graph", "keras3")


@pytest.fixture(params=[name for name in BACKENDS if name != "tf graph"])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    """The driver of a backend, such as ``tf eager``, for its default behaviour."""
    backend, _, mode = request.param.partition(" ")
    if not registry.installed(backend):
        pytest.skip(f"{backend} is not installed")
    made = drivers.load(backend, mode or None, strict=False)
    yield made
    made.close()
