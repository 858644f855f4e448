"""Tasks: what an experiment trains, how it is measured, compared and drawn.

A task is a package with these parts, loaded by name when they are needed:

``settings``
    ``Settings``, a dataclass that checks one run's settings. Imports no framework.
``training``
    ``prepare(backend, device)``: whether runs are possible;
    ``train(config, seed, backend, device)``: one run, in a worker process. The only
    part that imports a framework, in its ``tf_model`` and ``torch_model``.
``findings``
    ``judge(records)``: tables and the answer, from records alone, whichever of its
    settings' values they have; ``APART``: the settings that its tables tell apart;
    ``match(published, own)``: whether a user's own tables agree with the published;
    ``of_choices(choices)``, where it has one: a sentence of the answer about the values
    that a sweep chose, one row an arm.
``figures``
    ``drawings(finding)``: the plots, from a finding alone.

What several tasks share lies beside them, in ``cells``, ``digits``, ``packaged``,
``backends``, ``loss_scales`` and ``settings``: no experiment's package imports from
another's.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from lockstep.registry import BACKENDS

__all__ = ["TASKS", "TIMED", "part", "runs_on"]

TASKS = (
    "asynchronous_digits",
    "deep_digits",
    "gradient_norm",
    "link_prediction",
    "lost_updates",
    "mixed_precision_text",
    "movie_genres",
    "multitask_digits",
    "policy_digits",
    "recommender",
    "scaler_limits",
    "slow_link",
    "stable_rates",
    "throughput",
    "training_throughput",
    "warm_up",
    "worker_throughput",
)

TIMED = (
    "recommender",
    "slow_link",
    "throughput",
    "training_throughput",
    "worker_throughput",
)
"""Tasks whose runs measure time: nothing else is run beside one of them."""


def part(task: str, name: str) -> ModuleType:
    """Import one part of a task."""
    return importlib.import_module(f"harness.tasks.{task}.{name}")


def runs_on(task: str) -> list[str]:
    """Return the backends that a task has a model file for."""
    home = Path(__file__).parent / task
    return [
        name
        for name, backend in BACKENDS.items()
        if backend.model_file and (home / f"{backend.model_file}.py").exists()
    ]
