"""The benchmarks in Keras 3; each step is a ``tf.function``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from harness.tasks import own
from harness.tasks.overhead import shapes, tf_model
from harness.tasks.overhead.shapes import ADAM_RATE, CLIP, LIMIT, LOSS_SCALE
from harness.tasks.overhead.shapes import MASTERS_SCALE as SCALE
from harness.tasks.overhead.tf_model import Variant, larc_loop, our_larc, traced
from harness.timing import Makers, Step
from lockstep import keras3 as lockstep

SCALED = (
    lockstep.MixedPrecisionLossScaleOptimizer,
    lockstep.MixedPrecisionOptimizerWrapper,
)
"""Our wrappers with a loss scale."""

on_variables = partial(tf_model.on_variables, kind=keras.Variable)


def adam(**arguments: Any) -> keras.optimizers.Optimizer:
    return keras.optimizers.Adam(ADAM_RATE, **arguments)


def of(make: Callable[[], Any]) -> Variant:
    """Return the variant that is a step of an optimizer.

    Those of ``SCALED`` unscale only gradients that are made after ``scale_loss``, so it
    is called first.
    """

    def variant(gradients: list[Any], variables: list[Any]) -> Step:
        optimizer = make()
        optimizer.build(variables)

        def step() -> None:
            if isinstance(optimizer, SCALED):
                optimizer.scale_loss(tf.constant(0.0))
            optimizer.apply(gradients, variables)

        return step

    return variant


def multitask_overhead(
    seed: int, device: str, model: str, zeros: str, jit: str = ""
) -> Makers:
    """Steps of Adam: ``ours``, ``bare``."""
    ours = of(lambda: lockstep.MultitaskOptimizerWrapper(adam()))
    return on_variables({"ours": ours, "bare": of(adam)}, model, jit, zeros=zeros)


def own_optimizer(seed: int, device: str, model: str, file: str, text: str) -> Makers:
    """Steps of a user's optimizer (``ours``, ``yours``, ``wrapped``) and of Adam."""
    settings = {"file": file, "text": text, "learning_rate": ADAM_RATE}

    def made() -> Any:
        weights = tf_model.variables(model, keras.Variable, "float32")
        return own.make(settings, weights, keras.optimizers.Optimizer)

    wrapped = of(lambda: lockstep.MultitaskOptimizerWrapper(made()))
    yours, peer = of(made), of(adam)
    variants = {"ours": yours, "yours": yours, "wrapped": wrapped, "adam": peer}
    return on_variables(variants, model)


def loss_scaling_overhead(
    seed: int, device: str, part: str, model: str, jit: str = ""
) -> Makers:
    """Scaled and clipped steps: ``ours``, ``fixed``, ``keras``; neither: ``bare``."""
    wrapper = partial(lockstep.MixedPrecisionLossScaleOptimizer, clip_norm=CLIP)

    def peer() -> Any:
        clipped = adam(global_clipnorm=CLIP)
        return keras.optimizers.LossScaleOptimizer(clipped, initial_scale=LOSS_SCALE)

    variants = {
        "ours": of(lambda: wrapper(adam(), lockstep.DynamicLossScale(LOSS_SCALE))),
        "fixed": of(lambda: wrapper(adam(), lockstep.FixedLossScale(LOSS_SCALE))),
        "keras": of(peer),
        "bare": of(adam),
    }
    return on_variables(variants, model, jit, scale=LOSS_SCALE)


def masters_overhead(seed: int, device: str, model: str, jit: str = "") -> Makers:
    """Steps of Adam on float16 weights with masters: ``ours``, ``loop``."""
    wrapper = partial(lockstep.MixedPrecisionOptimizerWrapper, clip_norm=CLIP)
    variants = {"ours": of(lambda: wrapper(adam(), SCALE)), "loop": masters_loop}
    return on_variables(variants, model, jit, scale=SCALE, dtype="float16")


def masters_loop(gradients: list[Any], variables: list[Any]) -> Step:
    """Return the naive loop, which copies each tensor to its master and back."""
    masters = [keras.Variable(variable, dtype="float32") for variable in variables]
    optimizer = adam(global_clipnorm=CLIP)
    optimizer.build(masters)

    def step() -> None:
        wide = [tf.cast(gradient, tf.float32) / SCALE for gradient in gradients]
        optimizer.apply(wide, masters)
        for variable, master in zip(variables, masters, strict=True):
            variable.assign(tf.cast(master.value, tf.float16))

    return step


def larc_overhead(seed: int, device: str, model: str, jit: str = "") -> Makers:
    """LARC between the backward pass and the step: ``ours``, ``loop``.

    The scaled gradients are returned, because tensors are not changed in place.
    """
    ours = partial(our_larc, lockstep.post_process_gradients)
    return on_variables({"ours": ours, "loop": larc_loop}, model, jit)


def novograd_overhead(seed: int, device: str, model: str, jit: str = "") -> Makers:
    """Steps of NovoGrad: ``ours``, ``loop``."""
    variants = {"ours": of(lambda: lockstep.NovoGrad(ADAM_RATE)), "loop": novograd_loop}
    return on_variables(variants, model, jit)


def novograd_loop(gradients: list[Any], variables: list[Any]) -> Step:
    """Return the published rule as a loop over tensors, in operations of Keras."""
    ops = keras.ops
    beta1, beta2, epsilon = shapes.NOVOGRAD.values()
    momenta = [keras.Variable(ops.zeros_like(variable)) for variable in variables]
    moments = [keras.Variable(0.0) for _ in variables]

    def step() -> None:
        state = zip(gradients, variables, momenta, moments, strict=True)
        for gradient, variable, momentum, moment in state:
            square = ops.sum(ops.square(gradient))
            mixed = beta2 * moment + (1 - beta2) * square
            moment.assign(ops.where(moment == 0, square, mixed))
            direction = gradient / ops.sqrt(moment + epsilon)
            momentum.assign(beta1 * momentum + direction)
            variable.assign(variable - ADAM_RATE * momentum)

    return step


def row_clipping_overhead(seed: int, device: str, part: str, vocabulary: str) -> Makers:
    """Whole sparse steps of SGD: ``ours``, ``bare``, ``constraint`` (``MaxNorm``)."""

    def make(kind: str) -> Step:
        variable, gradient = table(int(vocabulary), seed)
        if kind == "constraint":
            variable.constraint = keras.constraints.MaxNorm(LIMIT, axis=1)
        optimizer = keras.optimizers.SGD(0.1)
        if kind == "ours":
            axes = {variable.path: [1]}
            optimizer = lockstep.VariableClippingOptimizer(optimizer, axes, LIMIT)
        optimizer.build([variable])
        return traced(lambda: optimizer.apply([gradient], [variable]))

    return {kind: partial(make, kind) for kind in ("ours", "bare", "constraint")}


def table(rows: int, seed: int) -> tuple[keras.Variable, tf.IndexedSlices]:
    """Return a table of short rows, and a gradient that makes the step's rows long."""
    start = tf.fill([rows, shapes.WIDTH], shapes.SHORT)
    variable = keras.Variable(start, name="table")
    named = tf.constant(shapes.named_rows(rows, seed))
    long = tf.fill([len(named), shapes.WIDTH], -10 * shapes.LONG)
    return variable, tf.IndexedSlices(long, named, [rows, shapes.WIDTH])
