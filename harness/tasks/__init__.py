"""Tasks: how an experiment trains, measures, compares and draws.

A task is a package with these parts, which are imported by name when they are needed:

``settings``
    ``Settings``, a dataclass that checks one run's settings. Imports no framework.
``training``
    ``prepare(backend, device)``: whether runs are possible;
    ``train(config, seed, backend, device)``: one run, in a worker process. Only this
    part imports a framework, in its model files such as ``torch_model``.
``findings``
    ``judge(records)``: tables and checks, from records alone, for any values of the
    settings; the words are in ``experiments/NAME.md``;
    ``APART``: the settings that distinguish runs in its tables;
    ``match(published, own)``: whether a user's own tables agree with the published.
``figures``
    ``drawings(finding)``: the plots, from a finding alone.

Code that several tasks share is in the modules ``cells``, ``digits``, ``packaged``,
``backends``, ``loss_scales`` and ``settings``. The package of an experiment never
imports from the package of another one.
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
    "gpu_steps",
    "link_prediction",
    "mixed_precision_text",
    "movie_genres",
    "multitask_digits",
    "recommender",
    "slow_link",
    "stable_rates",
    "throughput",
    "training_throughput",
    "warm_up",
    "worker_throughput",
)

TIMED = (
    "gpu_steps",
    "recommender",
    "slow_link",
    "throughput",
    "training_throughput",
    "worker_throughput",
)
"""Tasks whose runs measure time; no other run may be active meanwhile."""


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
