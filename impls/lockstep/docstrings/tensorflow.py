"""Docstring texts shared by the two backends on TensorFlow: tf and keras3."""

from __future__ import annotations

__all__ = ["TEXTS"]

WRAPPER = """\
Attributes:
    inner_optimizer: ``opt``.
    last_step: what the last eager step did, a
        :class:`~lockstep.interface.StepReport`. Steps in graphs and inside of a
        ``tf.function``, where ``fit`` takes its own, are not reported.
"""

TEXTS: dict[str, str] = {
    "MultitaskOptimizerWrapper": WRAPPER,
    "VariableClippingOptimizer": WRAPPER,
}
"""Name of a class, function or method -> the text of its two docstrings."""
