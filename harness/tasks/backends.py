"""Whether a task can run on a backend and a device here."""

from __future__ import annotations

from harness.errors import HarnessError, no_device
from harness.tasks import model as model
from harness.tasks import part


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
