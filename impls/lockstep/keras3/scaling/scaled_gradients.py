"""Scaling of a loss, and division of its gradients by the scale, once (Keras 3)."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import Gradient, as_gradient, value_of
from lockstep.keras3.base.train_v1 import TrainV1
from lockstep.keras3.base.wrapper import Wrapper
from lockstep.keras3.scaling.loss_scale import state_variable
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.messages.scaling.loss_scale import check_gradient_dtype
from lockstep.tf.shared.tensors.finite import divided
from lockstep.tf.shared.tensors.gradients import widen, with_values

__all__ = ["Pairs", "ScaledGradients", "narrowed"]

Pairs = list[tuple[Gradient, Any]]


class ScalesAlready(keras.optimizers.LossScaleOptimizer):
    """The class for which ``compile`` adds no loss scaling of Keras."""

    def __init__(self, learning_rate: float, name: str) -> None:
        keras.optimizers.Optimizer.__init__(self, learning_rate, name=name)


class ScaledGradients(Wrapper, ScalesAlready):
    """A wrapper that scales a loss, and divides its gradients by the scale.

    The factor of ``scale_loss`` is stored. The first method that reads the gradients
    divides by it, once.
    """

    owner: str
    """The name in messages."""

    def __init__(self, opt: keras.optimizers.Optimizer) -> None:
        super().__init__(opt)
        # Not setattr: Keras would track and save them. The keys are threads, one per
        # replica. ``_has_scaled``: while a loss is differentiated, whether it was
        # scaled. ``_by_hand``: the graph, or None, where gradients were unscaled by
        # hand.
        vars(self).update(_divisor=Divisor(), _has_scaled={}, _by_hand={})
        vars(self)["_steps_in_functions"] = False

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        raise NotImplementedError

    def check_loss(self, dtype: tf.DType) -> None:
        """Raise for an unsupported dtype of the loss; by default there is none."""

    def _trackable_children(
        self, save_type: str = "checkpoint", **kwargs: Any
    ) -> dict[str, Any]:
        """Return the tracked objects; for a SavedModel the divisor too.

        TensorFlow exports a function only if all of its variables are tracked.
        """
        children = super()._trackable_children(save_type, **kwargs)
        if save_type != "savedmodel":
            return children
        divisor = self._divisor
        return {**children, "divisor": divisor.value, "divisor_step": divisor.step}

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> tf.Tensor:
        """Return loss times scale; a half-precision loss becomes float32.

        Its gradients are divided by the scale once: see the class.

        Raises:
            DtypeError: a TypeError; strict, a loss in float16.
            LossNotCallableError: a TypeError; None or a string.
        """
        thread = threading.get_ident()
        if self._has_scaled.get(thread):
            # The loss of compute_gradients has already called this method.
            return loss
        # Read once: the loss and its gradients must use the same scale.
        if loss is None or isinstance(loss, str):
            raise base_refusals.NO_LOSS.error(owner=self.owner, got=loss)
        scale, loss = self.loss_scale, tf.convert_to_tensor(loss)
        self.check_loss(loss.dtype)
        product = scaled(self.inner_optimizer.scale_loss(loss), scale)
        self._divisor.put(scale, self._iterations.value)
        self._by_hand.pop(thread, None)
        if thread in self._has_scaled:
            self._has_scaled[thread] = True
        return product

    @tf.autograph.experimental.do_not_convert
    @documented
    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """...

        Args:
            gradients: the gradients that a tape returned for a list of variables. They
                are not changed if ``scale_loss`` was not called.
        """
        listed = words.listed_gradients(gradients, self.owner, tf.is_tensor(gradients))
        tensors = [as_gradient(g, f"gradient {k}", self.owner) for k, g in listed]
        for gradient in tensors:
            if gradient is not None:
                check_gradient_dtype(gradient.dtype.name)
        graph, thread = tf.compat.v1.get_default_graph(), threading.get_ident()
        here = None if tf.executing_eagerly() else weakref.ref(graph)
        unseen_step = here is None and self._steps_in_functions
        if self._by_hand.get(thread, False) == here and not unseen_step:
            owner = f"{self.owner}.unscale_gradients"
            raise refusals.UNSCALED_TWICE.error(owner=owner, remedy=words.SCALE_AGAIN)
        wide = [g if g is None or g.dtype.size > 2 else widen(g) for g in tensors]
        quotients = unscaled(wide, self._divisor.take(self._iterations.value))
        self._by_hand[thread] = here
        return quotients

    def differentiate(self, *arguments: Any) -> Pairs:
        """Differentiate the scaled loss; the pairs are not divided yet.

        Arguments and errors are as in
        :meth:`~lockstep.keras3.base.train_v1.TrainV1.compute_gradients`.
        """
        self._has_scaled[threading.get_ident()] = False
        try:
            return TrainV1.compute_gradients(self, *arguments)
        finally:
            del self._has_scaled[threading.get_ident()]

    def unscaled(self, pairs: Pairs) -> Pairs:
        """Return the pairs, divided by the stored factor.

        A gradient that overwrites its variable (the scales of float8) is not divided.
        """
        divisor = self._divisor.take(self._iterations.value)
        overwrites = [self._overwrite_variable_with_gradient(v) for _, v in pairs]
        gradients = [
            None if is_value else gradient
            for (gradient, _), is_value in zip(pairs, overwrites, strict=True)
        ]
        everything = zip(unscaled(gradients, divisor), pairs, overwrites, strict=True)
        return [(g if is_value else q, v) for q, (g, v), is_value in everything]

    def _forget_by_hand(self) -> None:
        """After a step, forget where gradients were unscaled by hand."""
        if None in self._by_hand.values() and not tf.executing_eagerly():
            # Later calls of a function do not run this code.
            vars(self)["_steps_in_functions"] = True
        self._by_hand.clear()


class Divisor:
    """The scale of a loss, until its gradients are divided by it.

    It is valid for one step. The step may not be visible here: an outer multitask
    wrapper counts a step in which every gradient is zero and does not pass it on. So
    the counter is stored too, and after it has changed the divisor is 1.

    It uses variables, because the loss and the gradients may be in different graphs.
    They are not the optimizer's, because between two steps there is nothing to save.
    """

    def __init__(self) -> None:
        self.value = value_of(state_variable("divisor", 1.0, "float32"))
        self.step = value_of(state_variable("divisor_step", 0, "int64"))

    def put(self, scale: tf.Tensor, iterations: tf.Tensor) -> None:
        """Store the scale of a loss; ``iterations`` counts the steps before it."""
        self.value.assign(scale, read_value=False)
        self.step.assign(tf.cast(iterations, tf.int64), read_value=False)

    def look(self, iterations: tf.Tensor) -> tf.Tensor:
        """Return the divisor: float32, 0-d."""
        fresh = tf.equal(self.step, tf.cast(iterations, tf.int64))
        return tf.where(fresh, self.value.read_value(), 1.0)

    def take(self, iterations: tf.Tensor) -> tf.Tensor:
        """Return the divisor and reset it to 1."""
        divisor = self.look(iterations)
        self.value.assign(1.0, read_value=False)
        return divisor


def scaled(loss: Any, scale: tf.Tensor) -> tf.Tensor:
    """Return loss times scale; half precision is computed and returned in float32."""
    loss = tf.convert_to_tensor(loss)
    loss = tf.cast(loss, tf.float32) if loss.dtype.size < 4 else loss
    return loss * tf.cast(scale, loss.dtype)


def unscaled(gradients: Sequence[Gradient], divisor: tf.Tensor) -> list[Gradient]:
    """Return each g (1/divisor), computed in float32 for half precision.

    If the divisor is 1, nothing is computed. None stays None.
    """
    present = [getattr(g, "values", g) for g in gradients if g is not None]
    values = tf.cond(
        tf.equal(divisor, 1.0),
        lambda: [tf.identity(value) for value in present],
        lambda: divided(present, divisor),
    )
    quotients = iter(tf.nest.flatten(values))
    return [None if g is None else with_values(g, next(quotients)) for g in gradients]


def narrowed(pairs: Pairs) -> Pairs:
    """Return the pairs; cast gradients unscaled by hand to their variables' dtypes."""
    narrow: Pairs = []
    for gradient, variable in pairs:
        dtype = value_of(variable).dtype
        if gradient is not None and gradient.dtype != dtype and dtype.size <= 2:
            values = tf.cast(getattr(gradient, "values", gradient), dtype)
            gradient = with_values(gradient, values)
        narrow.append((gradient, variable))
    return narrow
