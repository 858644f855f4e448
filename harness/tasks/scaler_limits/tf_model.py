"""The scalers of TensorFlow: ours, ours in a ``tf.function``, and Keras' own."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from harness.tasks.scaler_limits.batches import NAMES, SHAPE, Batches
from harness.tasks.scaler_limits.settings import ON_DEVICE, PEER, RAISES, Settings
from harness.tasks.scaler_limits.subject import Scaling, Subject
from lockstep.tf import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MomentumOptimizer,
)


def make(settings: Settings, scaling: Scaling, device: str) -> Subject:
    """Return the scaler of these settings, with new weights."""
    kinds = {PEER: Keras, ON_DEVICE: InFunction}
    with tf.device(f"/{ {'cuda': 'gpu'}.get(device, device) }:0"):
        return kinds.get(settings.subject, Lockstep)(settings, scaling)


class Lockstep:
    """Our wrapper in an eager loop of one call."""

    def __init__(self, settings: Settings, scaling: Scaling) -> None:
        ones = tf.ones(SHAPE[1])
        self.variables = [tf.Variable(ones, name=name) for name in NAMES]
        self.inner = MomentumOptimizer(settings.rate, settings.momentum)
        self.scaled = MixedPrecisionLossScaleOptimizer(
            self.inner,
            DynamicLossScale(scaling.initial, scaling.period),
            at_floor="raise" if settings.subject == RAISES else "warn",
            clip_norm=scaling.clip_norm,
        )

    def step(self, batch: Batches) -> None:
        """Take one eager step on a batch: [weights, width]."""
        rows = tf.constant(batch)
        self.scaled.minimize(lambda: self.loss(rows), var_list=self.variables)

    def loss(self, rows: tf.Tensor) -> tf.Tensor:
        """Return the sum of all weights times their rows."""
        return tf.add_n(
            [tf.reduce_sum(w * rows[k]) for k, w in enumerate(self.variables)]
        )

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.scaled.loss_scale)

    def weights(self) -> list[Any]:
        """Return copies of the weights."""
        return [w.numpy().copy() for w in self.variables]

    def slots(self) -> list[Any]:
        """Return copies of the momentum slots that exist."""
        slots = (self.inner.get_slot(w, "momentum") for w in self.variables)
        return [slot.numpy().copy() for slot in slots if slot is not None]


class InFunction(Lockstep):
    """Our wrapper with the whole step in one graph."""

    def __init__(self, settings: Settings, scaling: Scaling) -> None:
        super().__init__(settings, scaling)
        signature = [tf.TensorSpec(SHAPE, tf.float32)]
        self.step = tf.function(self.traced, signature, autograph=False)

    def traced(self, rows: tf.Tensor) -> None:
        """Take one step as a graph."""
        self.scaled.minimize(lambda: self.loss(rows), var_list=self.variables)


class Keras:
    """``keras.optimizers.LossScaleOptimizer`` in the loop of its documentation."""

    def __init__(self, settings: Settings, scaling: Scaling) -> None:
        self.variables = [
            keras.Variable("ones", (SHAPE[1],), "float32", name=name) for name in NAMES
        ]
        self.inner = keras.optimizers.SGD(
            settings.rate, settings.momentum, global_clipnorm=scaling.clip_norm
        )
        self.scaled = keras.optimizers.LossScaleOptimizer(
            self.inner, scaling.initial, scaling.period
        )
        self.scaled.build(self.variables)

    def step(self, batch: Batches) -> None:
        """Take one step as in Keras' documentation."""
        weights = [w.value for w in self.variables]
        with tf.GradientTape() as tape:
            parts = (
                tf.reduce_sum(w * row) for w, row in zip(weights, batch, strict=True)
            )
            loss = self.scaled.scale_loss(sum(parts))
        self.scaled.apply(tape.gradient(loss, weights), self.variables)

    def scale(self) -> float:
        """Return the scale of the next step."""
        return float(self.scaled.dynamic_scale)

    def weights(self) -> list[Any]:
        """Return copies of the weights."""
        return [w.numpy().copy() for w in self.variables]

    def slots(self) -> list[Any]:
        """Return copies of the momentum slots."""
        return [slot.numpy().copy() for slot in self.inner.momentums]
