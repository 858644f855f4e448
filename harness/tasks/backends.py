"""Import a task's model file for a backend, and check its device.

A run only imports the framework of its own backend.
"""

from __future__ import annotations

import importlib
from typing import Any

from harness.errors import HarnessError, no_device
from harness.tasks import models_of, part
from lockstep import registry


def model(task: str, backend: str) -> Any:
    """Import a task's model file for a backend."""
    file = registry.find(backend).model_file
    return importlib.import_module(f"harness.tasks.{models_of(task)}.{file}")


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
    lacking = _lacking_in_torch if backend == "pytorch" else _lacking_in_tf
    if reason := lacking(device):
        raise HarnessError(str(no_device(backend, device, reason)))


def require_cpu(backend: str, device: str) -> None:
    """Raise unless ``device`` is the CPU.

    Raises:
        HarnessError: ``device`` is not the CPU.
    """
    if device != "cpu":
        raise HarnessError(str(no_device(backend, device, "only the CPU")))


def _lacking_in_torch(device: str) -> str:
    """Return why ``device`` cannot hold a tensor; empty if it can."""
    import torch

    try:
        torch.zeros((), device=device)
    except (RuntimeError, AssertionError) as error:
        return str(error)
    return ""


def _lacking_in_tf(device: str) -> str:
    """Return the available devices; empty if ``device`` is one of them."""
    import tensorflow as tf

    kind = {"cuda": "GPU"}.get(device, device.upper())
    kinds = {each.device_type for each in tf.config.list_physical_devices()}
    return "" if kind in kinds else f"found only {', '.join(sorted(kinds))}"
