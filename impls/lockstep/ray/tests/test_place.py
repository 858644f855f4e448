"""A center lives on a node that has the resources which it is to take."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lockstep.ray import RayCenter
from lockstep.ray.tests.trainer import Trainer

HEAD = "node:__internal_head__"
"""A resource of which Ray gives 1 to the node that has the head."""

SECONDS = 20.0
"""How long Ray may take to count what is left; it takes about one."""

pytestmark = pytest.mark.slow


def wait_until_left(ray: Any, name: str, number: float) -> None:
    deadline = time.monotonic() + SECONDS
    while ray.available_resources().get(name, 0) != pytest.approx(number):
        assert time.monotonic() < deadline, ray.available_resources()
        time.sleep(0.05)


def test_a_center_takes_its_resources_until_it_is_removed(ray: Any, tmp_path) -> None:
    center = RayCenter("head", directory=tmp_path, resources={HEAD: 0.25})
    Trainer(0, center, commit="delta").round(0)
    wait_until_left(ray, HEAD, 0.75)
    center.remove()
    wait_until_left(ray, HEAD, 1.0)
