"""Workers push mean gradients to a center in a process of its own, which is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray", reason="needs Ray: pip install ray")

from lockstep import registry
from lockstep.ray import RayCenter
from lockstep.ray.tests.processes import place_of
from lockstep.ray.tests.small_workers import WORKERS

ORDER = [0, 1, 1, 0, 0, 0, 1, 1, 0, 0]


def keras_rule(worker: Any) -> Any:
    """Return a stack whose classes the center's process knows by their names only."""
    novograd = worker.package.NovoGrad(0.1)
    rows = worker.package.VariableClippingOptimizer(novograd, {"w": [0]}, max_norm=1.5)
    return worker.package.MultitaskOptimizerWrapper(rows)


def tf_rule(worker: Any) -> Any:
    """Return a stack whose row clipping has the worker's variable as a key."""
    package, axes = worker.package, {worker.variable.ref(): [0]}
    adam = package.AdamOptimizer(0.1)
    return package.MultitaskOptimizerWrapper(
        package.VariableClippingOptimizer(adam, axes, max_norm=1.5)
    )


def torch_rule(worker: Any) -> Any:
    """Return a stack whose row clipping has the worker's parameter as a key."""
    package, axes = worker.package, {worker.variable: [0]}
    adam = worker.torch.optim.Adam(worker.entered, lr=0.1)
    return package.MultitaskOptimizerWrapper(
        package.VariableClippingOptimizer(adam, axes, max_norm=1.5)
    )


RULES = {"keras3": keras_rule, "tf": tf_rule, "pytorch": torch_rule}


@pytest.mark.parametrize(
    "backend",
    ["pytorch", *(pytest.param(n, marks=pytest.mark.slow) for n in ("keras3", "tf"))],
)
def test_a_rule_moves_the_center_by_the_bits_of_one_process(
    backend: str, ray: Any, center: RayCenter, tmp_path: Path
) -> None:
    """The center is killed on the way, and goes on with the state of its optimizer."""
    if not registry.installed(backend):
        pytest.skip(f"{backend} is not installed")
    kind = type("Worker", (WORKERS[backend],), {"make_rule": RULES[backend]})
    center = RayCenter(center.name, directory=tmp_path, every=1)
    ours = [kind(center, commit="gradient").start() for _ in range(2)]
    first = kind(None, commit="gradient")
    theirs = [first, kind(first.getter.center, commit="gradient")]
    for turn, chosen in enumerate(ORDER):
        gradient = np.random.default_rng(turn).normal(size=2).astype(np.float32)
        if turn == 7:
            os.kill(place_of(ray, center)[1], signal.SIGKILL)
        for team in (ours, theirs):
            team[chosen].step(gradient)
    for one, other in zip(ours, theirs, strict=True):
        assert one.value().tobytes() == other.value().tobytes()
    assert center.status()["rounds"] == 5
