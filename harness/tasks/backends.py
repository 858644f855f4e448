"""A task's model file for a backend, and whether that can work on a device here.

A run only imports the framework of its own backend.
"""

from __future__ import annotations

import importlib
from typing import Any

from harness.errors import HarnessError, no_device
from harness.tasks import MODELS, part
from lockstep.registry import BACKENDS


def model(task: str, backend: str) -> Any:
    """Import a task's model file for a backend, such as ``TASK/torch_model.py``."""
    folder, file = MODELS.get(task, task), BACKENDS[backend].model_file
    return importlib.import_module(f"harness.tasks.{folder}.{file}")


def prepare(task: str, backend: str, device: str) -> None:
    """Import a task's model and test the device, or do what the task has for that.

    Raises:
        HarnessError: the backend cannot work on ``device`` here.
    """
    own = getattr(part(task, "task"), "prepare", None)
    if own is not None:
        own(backend, device)
        return
    model(task, backend)
    reason = ""
    if backend == "pytorch":
        import torch

        try:
            torch.zeros((), device=device)
        except (RuntimeError, AssertionError) as error:
            reason = str(error)
    else:
        import tensorflow as tf

        kind = {"cuda": "GPU"}.get(device, device.upper())
        kinds = {each.device_type for each in tf.config.list_physical_devices()}
        if kind not in kinds:
            reason = f"found only {', '.join(sorted(kinds))}"
    if reason:
        raise HarnessError(str(no_device(backend, device, reason)))


def require_cpu(backend: str, device: str) -> None:
    """Raise HarnessError unless ``device`` is the CPU."""
    if device != "cpu":
        raise HarnessError(str(no_device(backend, device, "only the CPU")))
