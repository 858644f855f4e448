"""Loss scales, and the wrapper that scales a loss and skips steps, over NumPy arrays.

The rules that move a scale are in :mod:`lockstep.scalers`: pure functions from one
state to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from numbers import Real
from typing import Any

import numpy as np

from lockstep import errors, scalers
from lockstep.checks import HELD, is_scale, number_of, require
from lockstep.interface import NO_STEP, Array, Gradient, Rows
from lockstep.pipeline import stages_of
from lockstep.reference import arrays, clipping
from lockstep.reference.arrays import Pairs, Variable, is_finite, times
from lockstep.reference.multitask import MultitaskOptimizerWrapper
from lockstep.reference.optimizers import Optimizer, Wrapper

# -- loss scales -----------------------------------------------------------------------


class FixedLossScale:
    """A loss scale that never moves.

    Args:
        loss_scale_value: the factor, a number >= 1 that float32 can hold.
        strict: also accept NaN, infinity and bools, but no NumPy number. An optimizer
            with this scale applies gradients that are not finite.

    Raises:
        OutOfRangeError: a ValueError; no number, or one that is out of range.

    Origin: ``tf.train.experimental.FixedLossScale``, TensorFlow 1.15.

    Example:
        >>> float(FixedLossScale(128)())
        128.0
    """

    good_steps = 0

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        owner, name, remedy = "FixedLossScale", "loss_scale_value", "give the factor"
        value = loss_scale_value
        if strict:  # arguments-checked
            fine = isinstance(value, int | float) and not value < 1
            require(owner, name, value, fine, "an int or float >= 1", remedy)
            self.loss_scale_value = float(value)
        else:
            number = number_of(value)
            require(owner, name, value, number >= 1, "a number >= 1", remedy)
            require(owner, name, value, is_scale(number), HELD, remedy)
            self.loss_scale_value = number

    def __call__(self) -> np.float32:
        """Return the value in float32."""
        return np.float32(self.loss_scale_value)

    def update(self, grads: Any) -> tuple[None, bool]:
        """Return (None, True) whatever the gradients are."""
        return None, True

    def get_config(self) -> dict[str, Any]:
        """Return the argument of the constructor."""
        return {"loss_scale_value": self.loss_scale_value}

    def __repr__(self) -> str:
        return f"FixedLossScale({self.loss_scale_value})"


class DynamicLossScale:
    """A loss scale that grows while gradients are finite and shrinks when they are not.

    After a finite step, good_steps += 1. When it reaches ``increment_period``,
    scale = min(scale growth, ceiling), unless the product is not finite, and
    good_steps = overflows = steps = 0. After an overflow, good_steps = 0 and
    overflows += 1. If overflows >= hysteresis and overflows / steps >= tolerance, this
    step included (by default, on each overflow), scale = max(scale / multiplier,
    floor), overflows = hysteresis - 1 and steps = 0.

    Args:
        initial_loss_scale: the first scale, > 0.
        increment_period: finite steps in a row until the scale grows, >= 1.
        multiplier: the factor of growth, > 1; an overflow divides by it.
        floor: the smallest scale, not above the initial one; None: 1, or the initial
            scale if that is smaller. Strict: always 1.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last grew or was lowered that may
            overflow, in [0, 1); not together with ``hysteresis``.
        strict: as the original: nothing is checked, an overflow raises a scale below 1
            to 1, a sparse gradient needs a dense_shape; the options after
            ``multiplier`` are not used.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: ``tf.train.experimental.DynamicLossScale``, TensorFlow 1.15; hysteresis as
    in Megatron-LM, tolerance as in fairseq.

    Example:
        >>> scale = DynamicLossScale(8.0, increment_period=2)
        >>> scale.update([np.array([np.inf])])
        (None, False)
        >>> float(scale())
        4.0
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        *,
        floor: float | None = None,
        ceiling: float | None = None,
        growth_factor: float | None = None,
        backoff_factor: float | None = None,
        hysteresis: int = 1,
        tolerance: float = 0.0,
        strict: bool = False,
    ) -> None:
        self.strict = strict
        if strict:  # arguments-checked, dynamic-scale-floor
            initial, period = float(initial_loss_scale), int(increment_period)
            policy = scalers.DynamicPolicy(initial, period, float(multiplier), 1.0)
        else:
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
        self.policy = policy
        start = float(np.float32(policy.initial_loss_scale))
        self.state = scalers.DynamicState(start, 0)

    @property
    def good_steps(self) -> int:
        """Finite steps in a row since the scale last moved or overflowed."""
        return int(self.state.good_steps)

    def __call__(self) -> np.float32:
        """Return the current scale."""
        return np.float32(self.state.loss_scale)

    def update(self, grads: Iterable[Gradient]) -> tuple[None, bool]:
        """Update the scale; return None, and whether all gradients are finite."""
        gradients = list(grads)
        self.require_dense_shapes(gradients)
        finite = all([is_finite(gradient) for gradient in gradients])
        self.move(finite)
        return None, finite

    def require_dense_shapes(self, gradients: Iterable[Gradient]) -> None:
        """Strict: raise for rows without a dense shape."""
        for gradient in gradients if self.strict else ():  # dynamic-scale-dense-shape
            if isinstance(gradient, Rows) and gradient.dense_shape is None:
                raise errors.UnsupportedError(
                    "DynamicLossScale: expected a dense shape of a sparse gradient, as "
                    "in the original, got None; give it, or leave strict off."
                )

    def move(self, finite: bool) -> None:
        """Update the scale after one step."""
        self.state = scalers.step_dynamic(self.policy, self.state, finite)

    def get_config(self) -> dict[str, Any]:
        """Return the original's arguments."""
        return dict(list(self.policy._asdict().items())[:3])

    def __repr__(self) -> str:
        """Return the scale and the good steps, then the arguments."""
        state = {"current_loss_scale": self(), "num_good_steps": self.good_steps}
        shown = {**state, **self.get_config()}.items()
        return f"DynamicLossScale({', '.join(f'{k}={v}' for k, v in shown)})"


class AutomaticLossScaler:
    """A loss scale that is updated with the largest gradient of every step.

    Backoff starts at scale_max; an overflow divides by step_factor, and every
    step_window steps after the last one the scale is multiplied by it. LogMax follows
    the mean and the deviation of log2(amax) so that overflows stay rare.

    Args:
        algorithm: "Backoff" or "LogMax"; case and outer spaces do not matter.
        params: the algorithm's parameters by name. Backoff: scale_min=1.,
            scale_max=16384., step_factor=2., step_window=2000 (steps); LogMax:
            scale_min=1., scale_max=16384., log_max=16., beta1=0.99, beta2=0.999,
            overflow_std_dev=3.09.
        strict: as in OpenSeq2Seq, quirks included: bounds are not checked, a NaN amax
            is no overflow; LogMax counts an overflow as 2^log_max, has the target 2^16
            whatever ``log_max`` is, and after one amax of 0 its scale stays NaN.

    Raises:
        UnknownNameError: a ValueError; an unknown algorithm or parameter.
        OutOfRangeError: a ValueError; a parameter of another type or out of its range.

    Origin: OpenSeq2Seq (8681d381ed40), ``AutomaticLossScaler``; B. Ginsburg et al.

    Example:
        >>> scaler = AutomaticLossScaler("Backoff", {"scale_max": 1024.0})
        >>> pairs = [(np.array([np.inf, 1.0]), Variable("w", [0.0, 0.0]))]
        >>> scaler.update_op(*scaler.check_grads(pairs))
        1
        >>> float(scaler.loss_scale)
        512.0
    """

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        _, self.policy = scalers.automatic_policy(algorithm, params, strict)
        self.tuple = scalers.start_automatic(self.policy)

    @property
    def loss_scale(self) -> np.float32:
        """The current scale."""
        return np.float32(self.tuple.loss_scale)

    @property
    def state(self) -> dict[str, Any]:
        """The scaler's state by name."""
        return dict(self.tuple._asdict())

    def update_op(self, has_nan: Any, amax: Any) -> int:
        """Update the scale after a step; return the number of steps so far."""
        self.tuple = scalers.step_automatic(
            self.policy, self.tuple, bool(has_nan), float(amax)
        )
        return int(self.tuple.iteration)

    @staticmethod
    def check_grads(
        grads_and_vars: Iterable[tuple[Gradient, Any]],
    ) -> tuple[np.bool_, Array]:
        """Return whether any element is NaN, and the largest magnitude of the others.

        Without any element the magnitude is -inf. Rows that share an index are not
        summed. Gradients of several dtypes are a DtypeError (a TypeError).
        """
        present = [arrays.values_of(g) for g, _ in grads_and_vars if g is not None]
        dtypes = sorted({str(values.dtype) for values in present})
        if len(dtypes) > 1:
            raise errors.DtypeError(
                "AutomaticLossScaler.check_grads: expected gradients of one dtype, got "
                f"{', '.join(dtypes)}; cast them to one dtype first."
            )
        has_nan, amax = False, -np.inf
        for values in present:
            for value in np.abs(values).ravel().tolist():
                has_nan = has_nan or value != value
                amax = max(amax, value)
        dtype = present[0].dtype if present else arrays.SINGLE
        return np.bool_(has_nan), np.asarray(amax, dtype)


# -- wrappers --------------------------------------------------------------------------


class ScalingWrapper(Wrapper):
    """A wrapper that skips a step if its gradients are not finite.

    The scale is updated after the variables, so a step that raises does not change it.

    Attributes:
        scale_object: a loss scale, an automatic scaler, a number, or None for 1.
        skips: whether a step with inf or NaN in its gradients is skipped.
        models: float32 master -> its variable, after which reports name it.
    """

    scale_object: Any
    skips = True

    def __init__(
        self, inner_optimizer: Any, clip_norm: float | None, strict: bool
    ) -> None:
        owner = type(self).__name__
        if not isinstance(inner_optimizer, Optimizer):
            raise errors.NotScalableError(
                f"{owner}: expected a lockstep.reference optimizer, got "
                f"{type(inner_optimizer).__name__}; pass one to scale the loss of."
            )
        if not strict and "unscale" in stages_of(inner_optimizer):  # arguments-checked
            raise errors.UnsupportedError(
                f"{owner}: expected an optimizer whose loss is not scaled yet, got "
                f"{type(inner_optimizer).__name__}; leave one of the scales out."
            )
        scalers.check_options(owner, clip_norm, at_floor="warn", patience=1)
        self.inner_optimizer = inner_optimizer
        self.clip_norm = clip_norm
        self.strict = strict
        self.takes_wide = not strict  # loss-scale-float16
        self.models: dict[Variable, Variable] = {}
        self.last_step = scalers.ScaledStepReport(*NO_STEP)

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        scale = self.scale_object
        if isinstance(scale, AutomaticLossScaler):
            return scale.loss_scale
        if isinstance(scale, FixedLossScale | DynamicLossScale):
            return scale()
        with np.errstate(over="ignore"):
            return np.float32(1 if scale is None else scale)

    def reciprocal(self) -> np.float32:
        """Return 1 / scale, rounded to float32."""
        with np.errstate(all="ignore"):
            return np.float32(1) / self.loss_scale

    def scaled_pairs(
        self, loss: Any, var_list: Iterable[Variable], scale: Callable[[Gradient], Any]
    ) -> Pairs:
        """Return the gradients after ``scale``; functions of d loss get the number."""
        number = self.loss_scale
        scaled = [g(number) if callable(g) else scale(g) for g in loss()]
        return self.inner_optimizer.compute_gradients(lambda: scaled, var_list)

    def apply_or_skip(self, pairs: Pairs, update: Callable[[Pairs], None]) -> None:
        """Call ``update`` with the clipped pairs unless the step is skipped."""
        before = float(self.loss_scale)
        gradients = [gradient for gradient, _ in pairs]
        variables = [variable for _, variable in pairs]
        names = [self.models.get(v, v).name for v in variables]
        named = list(zip(names, gradients, strict=True))
        nonfinite = [name for name, g in named if not is_finite(g)]
        norm = factor = None
        if self.clip_norm is not None and not nonfinite:
            norm = clipping.global_norm(gradients)
        finite = not nonfinite and (norm is None or bool(np.isfinite(norm)))
        scaler = self.scale_object
        if isinstance(scaler, AutomaticLossScaler):
            has_nan, amax, finite = scaler_inputs(scaler, pairs, finite, self.strict)
        applied = finite or not self.skips
        if applied and self.clip_norm is not None and norm is not None:
            # Below the limit the factor is exactly 1: c (1 / c) is not 1 for every c.
            factor = 1.0
            if norm > self.clip_norm:
                scale = clipping.clip_scale(norm, self.clip_norm)
                gradients = clipping.scale_gradients(gradients, scale)
                factor = float(scale)
        if applied:
            update(list(zip(gradients, variables, strict=True)))
        if isinstance(scaler, AutomaticLossScaler):
            scaler.update_op(has_nan, amax)
        elif isinstance(scaler, DynamicLossScale):
            scaler.move(finite)
        self.last_step = scalers.report(
            getattr(self.inner_optimizer, "last_step", None) if applied else None,
            names,
            nonfinite,
            (before, float(self.loss_scale)),
            applied,
            None if norm is None else float(norm),
            factor,
            [name for name, g in named if g is None],
        )


def scaler_inputs(
    scaler: AutomaticLossScaler, pairs: Pairs, finite: bool, strict: bool
) -> tuple[Any, Any, bool]:
    """Return has_nan and amax for an automatic scaler, and whether a step is finite.

    By default the scaler treats any overflow as its own, including that of summed
    duplicate rows and of the norm. A step without any element does not overflow.
    """
    if strict:  # masters-static-scale: the largest stored element decides.
        has_nan, amax = scaler.check_grads(pairs)
        return has_nan, amax, not (has_nan or np.isinf(amax))
    wide = [(arrays.cast(g, arrays.SINGLE), variable) for g, variable in pairs]
    has_nan, amax = scaler.check_grads(wide)
    largest = np.finfo(np.float32).max if finite else np.float32(np.inf)
    return has_nan, np.clip(amax, np.float32(0) if finite else largest, largest), finite


class MixedPrecisionLossScaleOptimizer(ScalingWrapper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    ``compute_gradients`` returns the gradients of loss x scale, each times 1 / scale,
    which is rounded to float32. If all gradients are finite, ``apply_gradients`` clips
    them to ``clip_norm`` and ``opt`` applies them; otherwise no variable and no
    optimizer state changes, and ``global_step`` stays. Then the scale is updated once.

    Args:
        opt: any optimizer or wrapper of the reference.
        loss_scale: a number >= 1, ``dynamic``, or a loss scale.
        strict: as in TensorFlow 1.15: with a fixed scale, non-finite gradients are
            applied, float16 is refused, subnormals are flushed.
        clip_norm: the largest global norm of the unscaled gradients, > 0. n is that
            norm in float32; if n > clip_norm, each gradient g becomes g clip_norm / n.
            If n is not finite, the step is skipped. None: no clipping, no norm.

    Raises:
        ValueError: ``opt`` is no optimizer, an argument out of range.
        TypeError: there is no ``loss_scale``.

    Origin: ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``, TensorFlow 1.15.
    By default we differ in what ``strict`` lists.

    Example:
        >>> w = Variable("w", [1.0, 2.0])
        >>> sgd = GradientDescentOptimizer(0.5)
        >>> optimizer = MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
        >>> optimizer.apply_gradients([(np.array([1.0, np.inf]), w)])
        >>> w.value.tolist(), float(optimizer.loss_scale)
        ([1.0, 2.0], 16384.0)
    """

    def __init__(
        self,
        opt: Optimizer,
        loss_scale: Any,
        strict: bool = False,
        *,
        clip_norm: float | None = None,
    ) -> None:
        super().__init__(opt, clip_norm, strict)
        owner = type(self).__name__
        if strict and isinstance(opt, MultitaskOptimizerWrapper):  # multitask-nesting
            raise errors.NotScalableError(
                f"{owner}: expected an optimizer, got a MultitaskOptimizerWrapper; "
                "leave strict off to nest wrappers."
            )
        if isinstance(loss_scale, Real):
            self.scale_object = FixedLossScale(loss_scale, strict)  # type: ignore[arg-type]
        elif isinstance(loss_scale, FixedLossScale | DynamicLossScale):
            self.scale_object = loss_scale
        elif isinstance(loss_scale, str) and loss_scale == "dynamic":
            self.scale_object = DynamicLossScale(strict=strict)
        elif loss_scale is None:
            raise errors.MissingLossScaleError(
                f"{owner}: expected a loss_scale, got None; give a number."
            )
        else:
            raise errors.UnknownNameError(
                f"{owner}: loss_scale: expected a number, 'dynamic' or a loss scale, "
                f"got {loss_scale!r}; MixedPrecisionOptimizerWrapper takes an "
                "AutomaticLossScaler."
            )
        # loss-scale-fixed
        self.skips = not (strict and isinstance(self.scale_object, FixedLossScale))

    def compute_gradients(self, loss: Any, var_list: Iterable[Variable]) -> Pairs:
        """Return the gradients times the scale, times its reciprocal."""
        variables = list(var_list)
        for variable in variables:
            if self.strict and variable.dtype == np.float16:  # loss-scale-float16
                raise errors.DtypeError(
                    f"{type(self).__name__}: expected float32, got the float16 "
                    f"variable {variable.name!r}; leave strict off."
                )

        def scale(gradient: Gradient) -> Gradient:
            return times(gradient, self.loss_scale, self.strict)

        pairs = self.scaled_pairs(loss, variables, scale)
        return [(times(g, self.reciprocal(), self.strict), v) for g, v in pairs]

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Apply unscaled gradients if they are finite, then update the scale."""
        if isinstance(self.scale_object, DynamicLossScale):
            self.scale_object.require_dense_shapes([gradient for gradient, _ in pairs])

        def update(pairs: Pairs) -> None:
            narrow = [(arrays.cast(gradient, v.dtype), v) for gradient, v in pairs]
            self.inner_optimizer.apply_gradients(narrow, global_step)

        self.apply_or_skip(pairs, update)
