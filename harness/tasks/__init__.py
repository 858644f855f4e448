"""Tasks: what an experiment trains, how it is measured, compared and drawn.

A task is a package with these parts, loaded by name when they are needed:

``settings``
    ``Settings``, a dataclass that checks one run's settings. Imports no framework.
``training``
    ``train(config, seed, backend, device)``: one run, in a worker process. The only
    part that imports a framework, in its ``tf_model`` and ``torch_model``.
``findings``
    ``find(experiment, scale, records)``: tables and the answer, from records alone.
``figures``
    ``draw(finding)``: the plots, from a finding alone.
"""

from __future__ import annotations

import importlib
from types import ModuleType

__all__ = ["TASKS", "part"]

TASKS = (
    "deep_digits",
    "link_prediction",
    "lost_updates",
    "multitask_digits",
    "policy_digits",
    "recommender",
    "scaler_limits",
    "throughput",
)


def part(task: str, name: str) -> ModuleType:
    """Import one part of a task."""
    return importlib.import_module(f"harness.tasks.{task}.{name}")
