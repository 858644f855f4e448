"""The benchmarks in TensorFlow; each step is a ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from harness.tasks.overhead import shapes
from harness.tasks.overhead.shapes import ADAM_RATE, CLIP, LIMIT, LOSS_SCALE
from harness.timing import Makers, Prepared, Step
from lockstep import tf as lockstep

Variant = Callable[[list[Any], list[Any]], Callable[[], Any]]
"""Builds a step on gradients and variables."""


def on_variables(
    variants: Mapping[str, Variant],
    model: str,
    jit: str = "",
    scale: float = 1.0,
    zeros: str = "none",
    dtype: str = "float32",
    kind: Callable[..., Any] = tf.Variable,
) -> Makers:
    """Return the builder of each variant, with its own variables of a kind."""
    gradients = [
        tf.constant(value, dtype) for value in shapes.gradients(model, scale, zeros)
    ]

    def make(variant: Variant) -> Step:
        return traced(variant(gradients, variables(model, kind, dtype)), jit)

    return {name: partial(make, variant) for name, variant in variants.items()}


def variables(model: str, kind: Callable[..., Any], dtype: str) -> list[Any]:
    """Return the parameters of a model."""
    return [kind(value, dtype=dtype) for value in shapes.arrays(model, seed=0)]


def traced(step: Callable[[], Any], jit: str = "") -> Step:
    """Return ``step`` as a ``tf.function``; ``jit`` is ``xla`` or empty."""
    xla = True if jit == "xla" else None
    compiled: Step = tf.function(step, autograph=False, jit_compile=xla)
    return compiled


def of(make: Callable[[], Any]) -> Variant:
    """Return the variant that is a step of an optimizer."""

    def variant(gradients: list[Any], variables: list[Any]) -> Step:
        optimizer, pairs = make(), list(zip(gradients, variables, strict=True))

        def step() -> None:
            optimizer.apply_gradients(pairs)

        return step

    return variant


def adam() -> Any:
    """Return our Adam, which has the rule of TensorFlow 1."""
    return lockstep.AdamOptimizer(ADAM_RATE)


def multitask_overhead(seed: int, device: str, model: str, zeros: str) -> Makers:
    """Steps of Adam: ``ours``, ``bare``, ``loop``."""
    ours = of(lambda: lockstep.MultitaskOptimizerWrapper(adam()))
    variants = {"ours": ours, "bare": of(adam), "loop": multitask_loop}
    return on_variables(variants, model, zeros=zeros)


def multitask_loop(gradients: list[Any], variables: list[Any]) -> Step:
    """Return the naive loop, with a condition for each variable, on Keras' Adam."""
    optimizer = keras.optimizers.Adam(ADAM_RATE)
    variables = [keras.Variable(v) for v in variables]
    optimizer.build(variables)

    def update(gradient: Any, variable: Any, rate: Any) -> tf.Tensor:
        optimizer.update_step(gradient, variable, rate)
        return tf.constant(0)  # ``tf.cond`` needs a result.

    def step() -> None:
        rate = tf.convert_to_tensor(optimizer.learning_rate)
        for gradient, variable in zip(gradients, variables, strict=True):
            tf.cond(
                tf.math.count_nonzero(gradient) > 0,
                partial(update, gradient, variable, rate),
                lambda: tf.constant(0),
            )
        optimizer.iterations.assign_add(1)

    return step


def loss_scaling_overhead(seed: int, device: str, part: str, model: str) -> Makers:
    """Scaled and clipped steps: ``ours``, ``fixed``, ``keras``; neither: ``bare``."""
    variants: dict[str, Variant] = {
        "ours": partial(scaled, lockstep.DynamicLossScale),
        "fixed": partial(scaled, lockstep.FixedLossScale),
        "keras": scaled_in_keras,
        "bare": of(adam),
    }
    return on_variables(variants, model, scale=LOSS_SCALE)


def scaled(
    scale: Callable[[float], Any], gradients: list[Any], variables: list[Any]
) -> Step:
    """Return a scaled and clipped step of our wrapper around Adam."""
    wrapper = lockstep.MixedPrecisionLossScaleOptimizer
    optimizer = wrapper(adam(), scale(LOSS_SCALE))

    @tf.custom_gradient
    def loss(*values: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        """Return 0 and the drawn gradients, at almost no cost."""
        return tf.constant(0.0), lambda upstream: gradients

    def step() -> None:
        pairs = optimizer.compute_gradients(lambda: loss(*variables), variables)
        clipped, _ = lockstep.clip_gradients_by_global_norm(pairs, CLIP)
        optimizer.apply_gradients(clipped)

    return step


def scaled_in_keras(gradients: list[Any], variables: list[Any]) -> Step:
    """Return a scaled and clipped step of Keras' ``LossScaleOptimizer``."""
    base = keras.optimizers.Adam(ADAM_RATE, global_clipnorm=CLIP)
    optimizer = keras.optimizers.LossScaleOptimizer(base, initial_scale=LOSS_SCALE)
    variables = [keras.Variable(variable) for variable in variables]
    optimizer.build(variables)
    return lambda: optimizer.apply(gradients, variables)


def larc_overhead(seed: int, device: str, model: str, jit: str = "") -> Makers:
    """LARC between the backward pass and the step: ``ours``, ``loop``.

    The scaled gradients are returned, because tensors are not changed in place.
    """
    ours = partial(our_larc, lockstep.post_process_gradients)
    return on_variables({"ours": ours, "loop": larc_loop}, model, jit)


def our_larc(
    process: Callable[..., Any], gradients: list[Any], variables: list[Any]
) -> Callable[[], list[Any]]:
    """Return a step that scales the gradients by ``post_process_gradients``."""
    pairs = list(zip(gradients, variables, strict=True))

    def step() -> list[Any]:
        processed = process(pairs, [], shapes.LARC_RATE, None, shapes.LARC)
        return [gradient for gradient, _ in processed]

    return step


def larc_loop(gradients: list[Any], variables: list[Any]) -> Callable[[], list[Any]]:
    """Return the naive loop; gradients of a norm of 0 are unchanged."""
    eta, epsilon = shapes.LARC.values()

    def scaled(gradient: Any, variable: Any) -> Any:
        weight_norm, gradient_norm = tf.norm(variable), tf.norm(gradient)
        rate = eta * weight_norm / (gradient_norm + epsilon) / shapes.LARC_RATE
        is_scaled = tf.logical_and(weight_norm != 0, gradient_norm != 0)
        return gradient * tf.where(is_scaled, tf.minimum(rate, 1.0), 1.0)

    return lambda: [scaled(*pair) for pair in zip(gradients, variables, strict=True)]


def row_clipping_overhead(seed: int, device: str, part: str, vocabulary: str) -> Makers:
    """Clipping after an update: ``ours``, ``dense``, ``small`` (a small table)."""
    table, small = Table(int(vocabulary), seed), Table(shapes.SMALL, seed)

    def dense() -> Any:
        clipped = tf.clip_by_norm(table.weight, LIMIT, axes=[1])
        table.weight.assign(clipped, read_value=False)

    return {
        "ours": partial(our_clip, table),
        "small": partial(our_clip, small),
        "dense": lambda: table.prepared(dense),
    }


class Table:
    """A table of short rows, and the rows of a step."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.weight = tf.Variable(tf.fill([vocabulary, shapes.WIDTH], shapes.SHORT))
        self.named = tf.constant(shapes.named_rows(vocabulary, seed))
        self.long = tf.fill([len(self.named), shapes.WIDTH], shapes.LONG)

    def lengthen(self) -> None:
        """Increase the norms of the named rows beyond the limit."""
        tf.raw_ops.ResourceScatterUpdate(
            resource=self.weight.handle, indices=self.named, updates=self.long
        )

    def prepared(self, step: Callable[[], Any]) -> Step:
        """Return a compiled step, preceded by :meth:`lengthen`, which is not timed."""
        return Prepared(self.lengthen, traced(step))


def our_clip(table: Table) -> Step:
    """Return the wrapper's clipping after a sparse update."""
    base = lockstep.GradientDescentOptimizer(0.1)
    optimizer = lockstep.VariableClippingOptimizer(
        base, {table.weight.ref(): [1]}, LIMIT
    )
    shape = table.weight.shape.as_list()
    gradient = tf.IndexedSlices(table.long, table.named, shape)

    def clip() -> None:
        optimizer._clip(gradient, table.weight, too_large=[])

    return table.prepared(clip)
