"""Tasks: how an experiment trains, measures, compares and draws.

A task is a folder of a few modules, which are imported when they are needed:

``task``
    ``Settings``, a dataclass that checks one run's settings. Its ``measured_at`` are
    the steps after which a run is measured, including 0. Imports no framework.
    ``make_plan(settings, seed)``: all data of a run, drawn from its seed.
    ``train(config, seed, backend, device)``: one run, in a worker process. By
    ``backends.model`` it imports the file with the backend's model by its name, such
    as ``torch_model``, and with it the framework.
``report``
    ``judge(records)``: tables and checks, from records alone, for any values of the
    settings; the words are in ``experiments/NAME.md``;
    ``drawings(finding)``: the plots in reading order, from a finding alone.

Code that several tasks share is in the modules of this package, and in its folders that
are no task. The folder of a task never imports from the folder of another one.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from lockstep.registry import BACKENDS

TASKS = (
    "asynchronous_digits",
    "deep_digits",
    "gpu_steps",
    "link_prediction",
    "mixed_precision_text",
    "movie_genres",
    "multitask_digits",
    "recommender",
    "stable_rates",
    "throughput",
    "training_throughput",
    "warm_up",
    "worker_processes",
)

TIMED = (
    "gpu_steps",
    "recommender",
    "throughput",
    "training_throughput",
    "worker_processes",
)
"""Tasks whose runs measure time; no other run may be active meanwhile."""

MODELS = {
    "link_prediction": "embeddings",
    "recommender": "embeddings",
}
"""Task -> the folder that it shares its model files in; others have their own."""


def part(task: str, name: str) -> ModuleType:
    """Import ``task`` or ``report`` of a task."""
    return importlib.import_module(f"harness.tasks.{task}.{name}")


def runs_on(task: str) -> list[str]:
    """Return the backends that a task has a model file for."""
    home = Path(__file__).parent / MODELS.get(task, task)
    files = {name: backend.model_file for name, backend in BACKENDS.items()}
    return [name for name, file in files.items() if (home / f"{file}.py").exists()]
