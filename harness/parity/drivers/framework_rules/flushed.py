"""The reference's default with subnormals flushed to zero, as TensorFlow's kernels do.

Keras 3 runs on these kernels, so its default flushes where the reference's does not.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from harness.parity.drivers.reference import NumpyDriver
from lockstep import quirks, registry
from lockstep.interface import Array
from lockstep.reference.clipping import clip_rows
from lockstep.reference.tensors.zero_test import flush_subnormals

__all__ = ["Flushing", "make_driver"]


class Flushing(NumpyDriver):
    """A driver of the reference that flushes until it is closed."""

    def __init__(self) -> None:
        super().__init__("numpy", registry.load("reference"))
        kernels = replace(
            quirks.DEFAULT, multitask_subnormals=True, row_clip_subnormals=True
        )
        exact = clip_rows.scaled

        def scaled(*arguments: Any) -> Array:
            """Return a clipped row as the kernel writes it."""
            return flush_subnormals(exact(*arguments))

        self.changes = ExitStack()
        self.changes.enter_context(mock.patch.object(quirks, "DEFAULT", kernels))
        self.changes.enter_context(mock.patch.object(clip_rows, "scaled", scaled))

    def close(self) -> None:
        """Let the default keep subnormals again."""
        self.changes.close()


def make_driver() -> NumpyDriver:
    """Return such a driver."""
    return Flushing()
