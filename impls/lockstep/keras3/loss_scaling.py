"""Loss scales, and the wrapper that scales the loss, for Keras 3 optimizers."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

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
    require_loss,
    state_variable,
    value_of,
)
from lockstep.tf.shared import loss_scales as shared
from lockstep.tf.shared import scaling
from lockstep.tf.shared.gradients import divided, name_of, widen, with_values
from lockstep.tf.shared.scaling import ScaledStep

registered = keras.saving.register_keras_serializable(package="lockstep")


@registered
class FixedLossScale(shared.StaticScale):
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> scale = FixedLossScale(8)
        >>> scale, float(scale())
        (FixedLossScale(8.0), 8.0)
    """

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__(shared.fixed_value(loss_scale_value))

    def update(self, grads: Any) -> tuple[None, bool]:
        """Do nothing: (None, True)."""
        return None, True


@registered
class DynamicLossScale(shared.PolicyScale):
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    After a finite step, good_steps += 1. When it reaches ``increment_period``,
    scale = min(scale growth, ceiling), unless the product is not finite, and
    good_steps = overflows = steps = 0. After an overflow, good_steps = 0 and
    overflows += 1. If overflows >= hysteresis and overflows / steps >= tolerance, this
    step included (by default, on each overflow), scale = max(scale / multiplier,
    floor), overflows = hysteresis - 1 and steps = 0.

    Args:
        initial_loss_scale: the first scale, > 0.
        increment_period: steps from one growth to the next, >= 1.
        multiplier: the factor of growth, > 1; an overflow divides by it.
        floor: the smallest scale, not above the initial one; None: 1, or the initial
            scale if that is smaller.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last changed that may overflow, in
            [0, 1); not together with ``hysteresis``.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
    in Megatron-LM, tolerance as in fairseq.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=1)
        >>> _, finite = scale.update([keras.ops.array([1.0, float("inf")]), None])
        >>> bool(finite), float(scale())
        (False, 4.0)
    """

    _make_variable = staticmethod(state_variable)

    def __init__(
        self,
        initial_loss_scale: float = 2**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        floor: float | None = None,
        ceiling: float | None = None,
        growth_factor: float | None = None,
        backoff_factor: float | None = None,
        hysteresis: int = 1,
        tolerance: float = 0.0,
    ) -> None:
        policy = scalers.dynamic_policy(
            initial_loss_scale,
            increment_period,
            multiplier,
            floor,
            ceiling,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            hysteresis=hysteresis,
            tolerance=tolerance,
        )
        super().__init__(policy)


@registered
class AutomaticLossScaler(shared.AutomaticLossScaler):
    """A loss scale that is updated with the largest gradient of every step.

    Backoff starts at scale_max; an overflow divides by step_factor, and every
    step_window steps after the last one the scale is multiplied by it. LogMax follows
    the mean and the deviation of log2(amax) so that overflows stay rare.

    State: ``tf.train.Checkpoint`` saves it; ``get_config`` has the arguments only.

    Args:
        algorithm: "Backoff" or "LogMax"; case and outer spaces do not matter.
        params: the algorithm's parameters by name, floats as float, the window as int.
            Backoff: scale_min=1., scale_max=16384., step_factor=2., step_window=2000
            (steps); LogMax: scale_min=1., scale_max=16384., log_max=16., beta1=0.99,
            beta2=0.999, overflow_std_dev=3.09.
        strict: as in OpenSeq2Seq, quirks included: bounds are not checked, a NaN amax
            is no overflow; LogMax counts an overflow as 2^log_max, has the target 2^16
            whatever ``log_max`` is, and after one amax of 0 its scale stays NaN.

    Raises:
        UnknownNameError: a ValueError; an unknown algorithm or parameter.
        OutOfRangeError: a ValueError; a parameter of another type or out of its range.

    Origin: OpenSeq2Seq (8681d381ed40), ``AutomaticLossScaler``; B. Ginsburg et al.

    Example:
        >>> scaler = AutomaticLossScaler("Backoff", {"scale_max": 64.0})
        >>> int(scaler.update_op(False, float("inf"))), float(scaler.loss_scale)
        (1, 32.0)
    """

    _make_variable = staticmethod(state_variable)

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(algorithm, params, strict)
        self._params = dict(params or {})

    def __repr__(self) -> str:
        shown = f", {self._params}" if self._params else ""
        return f"{type(self).__name__}({self.algorithm!r}{shown})"

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"algorithm": self.algorithm, "params": dict(self._params)}
        return config | ({"strict": True} if self.strict else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a scaler with initial state from the result of ``get_config``."""
        return cls(**config)


class ScalingWrapper(stack.Wrapper, keras.optimizers.LossScaleOptimizer):
    """The base of both wrappers that scale the loss and skip non-finite steps.

    It is a ``LossScaleOptimizer``, so that ``compile`` adds no loss scaling of Keras.
    ``scale_object`` is the scale that users know, ``scale`` the same as a loss scale.
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
        owner = type(self).__name__
        scalers.check_options(owner, clip_norm, at_floor, floor_patience)
        scaling.refuse_scaled(opt, owner)
        super().__init__(opt)
        stack.refuse_factor(self, owner)
        self.scale_object = scale_object
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.clip_norm = clip_norm
        # Not setattr: Keras would track and save these. ``_scaled``: the last loss that
        # was scaled. ``_by_hand``: thread, one per replica -> the graph, or None, in
        # which gradients were unscaled.
        vars(self).update(_divisor=Divisor(), _scale=scale, _never_scaled=True)
        vars(self).update(_scaled=None, _by_hand={}, _steps_in_functions=False)
        for variable in scale.variables:
            self._track_variable(variable)
        # Files and checkpoints find it by this name and this position.
        skips = state_variable("skipped_in_a_row", 0, "int64")
        self._track_variable(skips)
        self._track_trackable(skips, "skipped_in_a_row")
        vars(self)["_skips"] = scaling.Skips(owner, value_of(skips))

    def __getattr__(self, name: str) -> Any:
        """Read an attribute of the wrapped optimizer, or name Keras 2's successor."""
        if name in ("get_scaled_loss", "get_unscaled_gradients"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}; call "
                "scale_loss and unscale_gradients instead."
            )
        return super().__getattr__(name)

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``, none of which float8 overwrites."""
        refuse_overwritten(type(self).__name__, variables)
        super().build(variables)

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        vars(self)["_never_scaled"] = False
        return self._scale()

    @property
    def skipped_in_a_row(self) -> tf.Tensor:
        """The number of skipped steps since the last applied one: int64, 0-d."""
        return self._skips.in_a_row()

    @property
    def skipped_steps(self) -> tf.Tensor:
        """The number of all skipped steps: int64, 0-d."""
        return self._skips.total()

    # -- the loss and its gradients ----------------------------------------------------

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> tf.Tensor:
        """Return loss times scale; a half-precision loss becomes float32.

        Its gradients are divided by the scale once, by the next ``unscale_gradients``,
        ``compute_gradients``, ``apply`` or ``apply_gradients``.

        Raises:
            LossNotCallableError: a TypeError; None or a string.
        """
        if self._scaled is not None and self._scaled() is loss:
            # The loss of compute_gradients has already called this method.
            return loss
        loss = tf.convert_to_tensor(require_loss(loss, type(self).__name__))
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
            MalformedPairsError, DtypeError: TypeErrors; not a list of real gradients.
        """
        owner = type(self).__name__
        tensors = scaling.listed_gradients(gradients, owner)
        graph, thread = tf.compat.v1.get_default_graph(), threading.get_ident()
        here = None if tf.executing_eagerly() else weakref.ref(graph)
        unseen_step = here is None and self._steps_in_functions
        if self._by_hand.get(thread, False) == here and not unseen_step:
            raise errors.UnscaledTwiceError(
                f"{owner}.unscale_gradients: expected one unscaling of the gradients "
                "before each step, got a second one; take the step first, or call "
                "scale_loss(loss) to begin again."
            )
        wide = [g if g is None or g.dtype.size > 2 else widen(g) for g in tensors]
        quotients = unscaled(wide, self._divisor.take(self._iterations.value))
        self._by_hand[thread] = here
        return quotients

    def _differentiate(self, loss: Any, variables: list[Any], grad_loss: Any) -> Pairs:
        """Return unscaled gradients of the scaled loss, with the variables."""
        pairs = TrainV1._differentiate(self, loss, variables, grad_loss)
        return self.unscaled(pairs)

    def unscaled(self, pairs: Pairs) -> Pairs:
        """Return the pairs, divided by the stored factor."""
        gradients, variables = zip(*pairs, strict=True)
        divisor = self._divisor.take(self._iterations.value)
        return list(zip(unscaled(gradients, divisor), variables, strict=True))

    # -- steps -------------------------------------------------------------------------

    def checked_step(
        self, pairs: Pairs, variables: Sequence[Any], values: Sequence[Any]
    ) -> ScaledStep:
        """Return a step on unscaled gradients after the check of these values."""
        step = ScaledStep(pairs, [name_of(variable) for variable in variables], values)
        step.look(self.clip_norm)
        if self._never_scaled:
            settled = scaling.warn_unless_scaled(
                type(self).__name__, self._scale, values
            )
            vars(self)["_never_scaled"] = not settled
        return step

    def _take_step(self, pairs: Pairs) -> None:
        """Take the step of the wrapped optimizer."""
        self.inner_optimizer.apply(*map(list, zip(*pairs, strict=True)))

    def step_or_skip(self, step: ScaledStep) -> None:
        """Take a checked step, or skip it."""
        before = self._scale()
        if None in self._by_hand.values() and not tf.executing_eagerly():
            # Later calls of a function do not run this code.
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
                step.applied = bool(applied)
                step.scales = float(before), float(self._scale())
                inner = getattr(self.inner_optimizer, "last_step", None)
                self._set_report(step.report(inner))
            self._skips.count(step, self._scale, self.at_floor, self.floor_patience)

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


def unscaled(gradients: Sequence[Gradient], divisor: tf.Tensor) -> list[Gradient]:
    """Return each g (1/divisor), computed in float32 for half precision."""
    present = [getattr(g, "values", g) for g in gradients if g is not None]
    values = tf.cond(
        tf.equal(divisor, 1.0),
        lambda: [tf.identity(value) for value in present],
        lambda: divided(present, divisor),
    )
    quotients = iter(tf.nest.flatten(values))
    return [None if g is None else with_values(g, next(quotients)) for g in gradients]


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
        loss_scale: float | str | shared.LossScale,
        at_floor: str = "warn",
        floor_patience: int = scaling.PATIENCE,
        *,
        clip_norm: float | None = None,
    ) -> None:
        kinds = FixedLossScale, DynamicLossScale
        scale = shared.scale_for(loss_scale, *kinds, kinds)
        super().__init__(opt, scale, scale, clip_norm, at_floor, floor_patience)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Unscale; step if all gradients are finite; update the scale."""
        pairs = self.unscaled(list(zip(gradients, variables, strict=True)))
        values = [getattr(g, "values", g) for g, _ in pairs if g is not None]
        self.step_or_skip(self.checked_step(pairs, variables, values))

    def _take_step(self, pairs: Pairs) -> None:
        """Take the step on gradients in their variables' dtypes; some are float32."""
        super()._take_step(scaling.narrowed(pairs))
