"""What a wrapper declares for stacks: its layers, and how it nests.

A layer is a wrapper with its arguments, and has a short name. A stack is written from
the outside in: ``"multitask dynamic Adam"`` is a multitask wrapper around a loss-scale
optimizer around Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from harness.parity.drivers.protocol import Driver, Worker
from lockstep.registry import BACKENDS

__all__ = [
    "BASES",
    "EVERYWHERE",
    "NOTES",
    "RIGHT",
    "Layer",
    "Model",
    "Nesting",
    "dynamic_scale",
]


class Model(NamedTuple):
    """The variables that are trained.

    Attributes:
        variables: the first is a matrix, whose rows may be clipped.
        worker: owner of the variables, if they belong to a worker.
    """

    variables: Sequence[Any]
    worker: Worker | None = None


Wrap = Callable[[Driver, Any, Model], Any]


class Layer(NamedTuple):
    """A wrapper with its arguments.

    Attributes:
        wrapper: its public name.
        wrap: backend, optimizer, model -> the wrapper.
        text: its description on pages; empty for the layer's own name.
    """

    wrapper: str
    wrap: Wrap
    text: str = ""


NOTES: Mapping[str, str] = {
    "idle counts": "a step with only zero gradients is finite for the loss scale",
    "skip clips": "rows are clipped even if the step is skipped",
    "zero clips": "rows are clipped even if the gradient is all zero",
    "zeros go round": "a variable with an all-zero gradient is pushed and pulled",
}
"""How a nesting order can differ from the listed order of the stages."""

EVERYWHERE = frozenset(BACKENDS)


class Nesting(NamedTuple):
    """The result of one wrapper around another.

    Attributes:
        note: a key of ``NOTES``, or empty.
        refused: backends that raise when the pair is built, or a mode of a backend that
            raises in its first step.
        sentence: part of the error message.
    """

    note: str = ""
    refused: frozenset[str] = frozenset()
    sentence: str = ""


RIGHT = Nesting()


def dynamic_scale(names: Any) -> Any:
    """Return a scale that changes often: it grows at every second finite step."""
    return names.DynamicLossScale(4.0, 2)


BASES: Mapping[str, Mapping[str, Any]] = {
    "GradientDescent": {"learning_rate": 0.25},
    "Momentum": {"learning_rate": 0.25, "momentum": 0.5},
    "Adam": {"learning_rate": 0.125},
    "AdamW": {"weight_decay": 0.0625, "learning_rate": 0.125},
    "Adagrad": {"learning_rate": 0.25},
    "RMSProp": {"learning_rate": 0.0625, "momentum": 0.5, "centered": True},
    "Ftrl": {"learning_rate": 0.25, "l1_regularization_strength": 0.0078125},
    "NovoGrad": {"learning_rate": 0.125, "beta1": 0.5, "weight_decay": 0.0625},
}
"""Base optimizer -> its arguments. Each is also a stack without a wrapper."""
