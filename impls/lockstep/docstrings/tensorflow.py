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
SCALED = """\
    last_step: what the last eager step did, a
        :class:`~lockstep.messages.scaling.loss_scaling.ScaledStepReport`. Steps in
        graphs and inside of a ``tf.function``, where ``fit`` takes its own, are not
        reported.
    skipped_steps, skipped_in_a_row: all skipped steps, and those since the last
        step that was not skipped: int64 tensors, saved; not under ``strict``.
"""

TEXTS: dict[str, str] = {
    "AutomaticLossScaler": """\
Example:
    >>> scaler = AutomaticLossScaler("Backoff", {"scale_max": 64.0})
    >>> int(scaler.update_op(False, float("inf"))), float(scaler.loss_scale)
    (1, 32.0)
""",
    "AutomaticLossScaler.check_grads": """\
Return whether any gradient has a NaN, and the largest absolute value.

Duplicate rows of sparse gradients are not summed. The maximum ignores NaN; without any
element it is -inf.

Raises:
    DtypeError: a TypeError; the gradients have several dtypes.
""",
    "AutomaticLossScaler.update_op": """\
Move the scale by one step.

Args:
    has_nan: whether any gradient has a NaN: bool, 0-d.
    amax: the largest absolute value: float32, 0-d.

Returns:
    The number of updates made, this one included: int64, 0-d. In a graph, running it
    makes the update.

Raises:
    DtypeError: a TypeError; strict, an ``amax`` that is not float32.
""",
    "DynamicLossScale.update": """\
Move the scale by one step.

Args:
    grads: any nest of tensors, ``tf.IndexedSlices`` and None.

Raises:
    DtypeError: a TypeError; a gradient of integers.
    UnsupportedError: a ValueError; strict, a sparse one without dense_shape.
""",
    "FixedLossScale": """\
Example:
    >>> scale = FixedLossScale(8)
    >>> scale, float(scale())
    (FixedLossScale(8.0), 8.0)
""",
    "MixedPrecisionLossScaleOptimizer": f"""\
Args:
    at_floor: what to do once ``floor_patience`` steps in a row were skipped and the
        scale is at its floor: ``warn`` once (in a graph, so in ``fit``, print to
        stderr); ``raise`` (in a graph an assertion, which raises
        ``tf.errors.InvalidArgumentError`` when it runs); ``ignore``. Code compiled by
        XLA only counts skips.
    strict: as the original: non-finite gradients are applied at a fixed scale,
        float16 is refused, slots and ``variables()`` are hidden, no stall is noticed,
        ``clip_norm`` is refused.

Attributes:
    inner_optimizer: ``opt``.
    scale_object: the loss scale as an object.
{SCALED}
Raises:
    MissingLossScaleError: a TypeError and ValueError; ``loss_scale`` is None.
    UnknownNameError, OutOfRangeError: a ValueError; see the arguments.
""",
    "MixedPrecisionOptimizerWrapper": f"""\
Args:
    strict: as the original. Only float16 variables have masters, and each of them
        needs a gradient. A static scale is a float, and gradients that are not finite
        are applied with it. Slots and ``variables()`` are hidden. Values written into
        the model from outside are lost. A stall of the scale is not noticed.

Attributes:
    inner_optimizer: ``optimizer``; its slots belong to the masters.
    scale_object: the scale: a float, or an object.
{SCALED}
Raises:
    UnknownNameError, OutOfRangeError: a ValueError; see the arguments.
""",
    "MixedPrecisionOptimizerWrapper.compute_gradients": """\
Raises:
    UnusableScaleError: an AttributeError; strict, no float and no scaler.
    DtypeError: a TypeError; strict, a float16 loss at an automatic scale.
    UnsupportedError: a ValueError; strict, a float16 variable without gradient.
""",
    "MultitaskOptimizerWrapper": WRAPPER,
    "SkippingWrapper": """\
A wrapper that skips a step if its gradients are not finite.

Args:
    at_floor: what to do about a stall; ``clip_norm``: the largest global norm; both
        are checked.
    floor_patience: the number of steps skipped in a row that are a stall.
    strict: skips are not counted, and slots are hidden.
""",
    "VariableClippingOptimizer": WRAPPER,
    "get": """\
Return the loss scale for ``identifier``.

A number gives a :class:`FixedLossScale`, "dynamic" a :class:`DynamicLossScale`. A loss
scale and None are returned unchanged.

Raises:
    UnknownNameError: a ValueError; anything else.
""",
    "mp_regularizer_wrapper": """\
...

``MixedPrecisionOptimizerWrapper`` adds d regularizer(master)/d master to the gradient
of the master, because in half precision a gradient such as 1e-4 w would underflow.
""",
}
"""Name of a class, function or method -> the text of its two docstrings."""
