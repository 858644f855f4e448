"""Loss scales, and the wrapper that scales the loss, for Keras 3 optimizers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep import errors, scalers
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.keras3 import wrapper as stack
from lockstep.keras3.gradients import (
    Gradient,
    Pairs,
    TrainV1,
    refuse_overwritten,
    state_variable,
    value_of,
)
from lockstep.tf.shared import scaling
from lockstep.tf.shared.gradients import (
    divided,
    in_float32,
    values_of,
    with_values,
)
from lockstep.tf.shared.loss_scales import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    scale_for,
)
from lockstep.tf.shared.scaling import ScaledStep, Scaling

registered = keras.saving.register_keras_serializable(package="lockstep")


for kind in FixedLossScale, DynamicLossScale, AutomaticLossScaler:
    registered(kind)


class ScalingWrapper(Scaling, stack.Wrapper, keras.optimizers.LossScaleOptimizer):
    """The base of both wrappers that scale the loss and skip non-finite steps.

    It is a ``LossScaleOptimizer``, so that ``compile`` adds no loss scaling of Keras.
    """

    last_step: StepReport = scalers.ScaledStepReport(*NO_EAGER_STEP)
    report_class = scalers.ScaledStepReport
    _refusal = errors.NotScalableError
    takes_wide = True

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        scale_object: Any,
        scale: Any,
        clip_norm: float | None,
        at_floor: str,
        floor_patience: int,
    ) -> None:
        super().__init__(opt)
        stack.refuse_factor(self, type(self).__name__)
        self.scale_object = scale_object
        # Not setattr: Keras would track and save these. ``_scaled``: the last loss that
        # was scaled. ``_by_hand``: thread, one per replica -> the graph, or None, in
        # which gradients were unscaled.
        vars(self).update(_scale=scale, _divisor=Divisor(), _scaled=None)
        vars(self).update(_by_hand={}, _steps_in_functions=False)
        self._set_options(clip_norm, at_floor, floor_patience)
        # Files find them by their position.
        for variable in (*scale.variables, *self._counts):
            self._track_variable(variable)

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``, none of which float8 overwrites."""
        refuse_overwritten(type(self).__name__, variables)
        super().build(variables)

    # -- the loss and its gradients ----------------------------------------------------

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> tf.Tensor:
        """Return loss times scale; a half-precision loss becomes float32.

        Its gradients are divided by the scale once, by the next ``unscale_gradients``,
        ``compute_gradients``, ``apply`` or ``apply_gradients``.
        """
        if self._scaled is not None and self._scaled() is loss:
            # The loss of compute_gradients has already called this method.
            return loss
        loss = tf.convert_to_tensor(loss)
        # Read once: the loss and its gradients must use the same scale.
        scale = self.loss_scale
        inner = tf.convert_to_tensor(self.inner_optimizer.scale_loss(loss))
        inner = tf.cast(inner, tf.float32) if inner.dtype.size < 4 else inner
        self._divisor.put(scale, self._iterations.value)
        self._by_hand.pop(threading.get_ident(), None)
        scaled = inner * tf.cast(scale, inner.dtype)
        vars(self)["_scaled"] = weakref.ref(scaled)
        return scaled

    @tf.autograph.experimental.do_not_convert
    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """Return the gradients of a scaled loss divided by the scale: g x fl32(1 / s).

        ``apply_gradients`` then does not unscale them again. Half precision becomes
        float32, None stays None, and sparse gradients stay sparse.

        Args:
            gradients: the gradients that a tape returned for a list of variables. They
                are not changed if ``scale_loss`` was not called.

        Raises:
            UnscaledTwiceError: a RuntimeError; a second call before the step.
        """
        graph, thread = tf.compat.v1.get_default_graph(), threading.get_ident()
        here = None if tf.executing_eagerly() else weakref.ref(graph)
        # Python does not see later calls of a function that takes steps.
        unseen_step = here is None and self._steps_in_functions
        if self._by_hand.get(thread, False) == here and not unseen_step:
            raise errors.UnscaledTwiceError(
                f"{type(self).__name__}.unscale_gradients: expected one unscaling of "
                "the gradients before each step, got a second one; take the step first,"
                " or call scale_loss(loss) to begin again."
            )
        self._by_hand[thread] = here
        wide = [(in_float32(gradient), None) for gradient in gradients]
        return [gradient for gradient, _ in self.unscaled(wide)]

    def _differentiate(self, loss: Any, variables: list[Any], grad_loss: Any) -> Pairs:
        """Return unscaled gradients of the scaled loss, with the variables."""
        pairs = TrainV1._differentiate(self, loss, variables, grad_loss)
        return self.unscaled(pairs)

    def unscaled(self, pairs: Pairs) -> Pairs:
        """Return pairs of g (1/s), s the stored scale; half precision as float32."""
        divisor = self._divisor.take(self._iterations.value)
        present = [values_of(gradient) for gradient, _ in pairs if gradient is not None]
        values = tf.cond(
            tf.equal(divisor, 1.0),
            lambda: [tf.identity(value) for value in present],
            lambda: divided(present, divisor),
        )
        quotients = iter(tf.nest.flatten(values))
        return [
            (g if g is None else with_values(g, next(quotients)), v) for g, v in pairs
        ]

    # -- steps -------------------------------------------------------------------------

    def _take_step(self, pairs: Pairs) -> None:
        """Take the step of the wrapped optimizer."""
        self.inner_optimizer.apply(*map(list, zip(*pairs, strict=True)))

    def step_or_skip(self, step: ScaledStep) -> None:
        """Take a checked step, or skip it; update the scale."""
        before = self._scale()
        if None in self._by_hand.values() and not tf.executing_eagerly():
            vars(self)["_steps_in_functions"] = True
        self._by_hand.clear()

        def update() -> tf.Tensor:
            step.update(self._take_step)
            return tf.constant(True)

        skip = tf.zeros_like(step.finite)
        applied = tf.cond(step.finite, update, lambda: skip)
        # A step that fails does not change the scale.
        with tf.control_dependencies([applied]):
            step.move(self._scale)
            if tf.executing_eagerly():
                after = float(self._scale())
                inner, applied = self.inner_optimizer, bool(applied)
                report = step.report(inner, applied, float(before), after)
                self._set_report(report)
            self._count(step)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "loss_scale": keras.saving.serialize_keras_object(self.scale_object),
            "at_floor": self.at_floor,
            "floor_patience": self.floor_patience,
            "clip_norm": self.clip_norm,
        }

    @classmethod
    def from_config(cls, config: Any, custom_objects: Any = None) -> stack.Wrapper:
        """Create a wrapper from the result of ``get_config``."""
        scale = keras.saving.deserialize_keras_object(
            config["loss_scale"], custom_objects
        )
        return super().from_config({**config, "loss_scale": scale}, custom_objects)


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


@registered
class MixedPrecisionLossScaleOptimizer(ScalingWrapper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    If every element of every gradient is finite, ``opt`` takes its step with the
    gradients, clipped if ``clip_norm`` is given. Otherwise weights, slots,
    ``iterations`` and ``global_step`` do not change. Then the scale is updated, once.

    There are two ways to scale. ``compute_gradients`` returns
    g = d(s loss)/dw (1/s), where s is the loss scale and 1/s is rounded to float32. The
    other way is ``scale_loss(loss)``, which ``fit`` calls. The gradients computed after
    it are divided once, by the first call of ``apply``, ``apply_gradients`` or
    ``compute_gradients``, in graphs and across graphs too. Gradients computed without
    either are treated as unscaled; the first step that does so warns.

    With the policy ``mixed_float16``, Keras' ``compile`` wraps an optimizer in its own
    loss scaling. It does not wrap this class, which is a
    ``keras.optimizers.LossScaleOptimizer``, so make it the outermost wrapper. If
    another wrapper is outside, pass ``compile(..., auto_scale_loss=False)``. With
    Keras' scaling around it, this one does not scale the loss.

    Args:
        opt: any Keras optimizer, or a wrapper.
        loss_scale: a number >= 1, ``dynamic``, or a loss scale.
        at_floor: what to do once ``floor_patience`` steps in a row were skipped and the
            scale is at its floor: ``warn`` once (in a graph, so in ``fit``, print to
            stderr); ``raise`` (in a graph an assertion, which raises
            ``tf.errors.InvalidArgumentError`` when it runs); ``ignore``. Code compiled
            by XLA only counts skips.
        floor_patience: steps.
        clip_norm: the largest global norm of the unscaled gradients, > 0. n is that
            norm in float32; if n > clip_norm, each gradient g becomes g clip_norm / n.
            If n is not finite, the step is skipped. inf: only measure the norm. None:
            no clipping, no norm.

    Attributes:
        inner_optimizer: ``opt``.
        scale_object: the loss scale as an object.
        last_step: what the last eager step did, a
            :class:`~lockstep.scalers.ScaledStepReport`. Steps in graphs and inside of a
            ``tf.function``, where ``fit`` takes its own, are not reported.
        skipped_steps, skipped_in_a_row: all skipped steps, and those since the last
            step that was not skipped: int64 tensors, saved.

    Raises:
        NotScalableError: a ValueError and TypeError; ``opt`` is no Keras optimizer.
        MissingLossScaleError: a TypeError and ValueError; ``loss_scale`` is None.
        UnknownNameError, OutOfRangeError: a ValueError; see the arguments.

    State: the scale and its counts are in ``variables`` and in ``.keras`` files. If
    ``opt`` accumulates gradients over steps, each of these steps is checked separately,
    and a skipped one does not count.

    Origin: ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``, TensorFlow 1.15,
    which applied non-finite gradients at a fixed scale and refused float16.

    Example:
        >>> w = keras.Variable([1.0, 2.0])
        >>> sgd = keras.optimizers.SGD(0.5)
        >>> opt = MixedPrecisionLossScaleOptimizer(sgd, 8.0)
        >>> _ = opt.minimize(lambda: keras.ops.sum(w * w), var_list=[w])
        >>> w.numpy().tolist(), opt.last_step.applied
        ([0.0, 0.0], True)
    """

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        loss_scale: float | str | LossScale,
        at_floor: str = "warn",
        floor_patience: int = scaling.PATIENCE,
        *,
        clip_norm: float | None = None,
    ) -> None:
        scale = scale_for(loss_scale, FixedLossScale, DynamicLossScale)
        super().__init__(opt, scale, scale, clip_norm, at_floor, floor_patience)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Unscale; step if all gradients are finite; update the scale."""
        pairs = self.unscaled(list(zip(gradients, variables, strict=True)))
        values = [getattr(g, "values", g) for g, _ in pairs if g is not None]
        step = ScaledStep(pairs, values)
        self._look(step)
        self.step_or_skip(step)

    def _take_step(self, pairs: Pairs) -> None:
        """Take the step on gradients in their variables' dtypes; some are float32."""
        super()._take_step(scaling.narrowed(pairs))
