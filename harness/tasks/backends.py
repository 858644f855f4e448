"""Import a task's model file for a backend, and check its device.

A run only imports the framework of its own backend.
"""

from __future__ import annotations

import importlib
from typing import Any

from harness.errors import HarnessError, no_device
from lockstep import registry


def model(package: str | None, backend: str) -> Any:
    """Import the model file of a task's package for a backend."""
    return importlib.import_module(f"{package}.{registry.find(backend).model_file}")


def prepare(package: str | None, backend: str, device: str) -> None:
    """Import a task's model and test the device; raise if either fails.

    Raises:
        HarnessError: the backend cannot work on ``device`` here.
    """
    model(package, backend)
    lacking = _lacking_in_torch if backend == "pytorch" else _lacking_in_tf
    if reason := lacking(device):
        raise HarnessError(str(no_device(backend, device, reason)))


def require_cpu(backend: str, device: str) -> None:
    """Raise unless ``device`` is the CPU, for tasks in NumPy.

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
