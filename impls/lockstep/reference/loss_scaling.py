"""Loss scales, and the wrapper that scales a loss and skips steps, over NumPy arrays.

The rules that move a scale are in :mod:`lockstep.scalers`: pure functions from one
state to the next.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np

from lockstep import errors, scalers
from lockstep.checks import HELD, is_scale, number_of, require
from lockstep.interface import GATE_OP, NO_GRADIENTS, NO_STEP, Array, Gradient, Rows
from lockstep.pipeline import stages_of
from lockstep.reference import arrays, clipping
from lockstep.reference.arrays import Pairs, Variable, is_finite, times, widen
from lockstep.reference.multitask import MultitaskOptimizerWrapper
from lockstep.reference.optimizers import Optimizer, Wrapper

PATIENCE = 100
"""Default number of steps skipped in a row at the scale's floor that are a stall."""


# -- loss scales -----------------------------------------------------------------------


class LossScale:
    """Base of both loss scales: call it for the scale, ``update`` it once per step."""

    good_steps = 0

    def __call__(self) -> np.float32:
        """Return the current scale."""
        raise NotImplementedError

    def update(self, grads: Any) -> tuple[None, bool]:
        """Check the unscaled gradients of a step, and update the scale.

        Returns:
            None, and whether the gradients should be applied.
        """
        raise NotImplementedError

    def move(self, finite: bool) -> None:
        """Update the scale after one step."""

    def variables(self) -> list[Array]:
        """Return the state; by default there is none."""
        return []

    def at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        return True

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor by name."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a new loss scale from the result of ``get_config``."""
        known = list(inspect.signature(cls).parameters)
        for name in config:
            if name not in known:
                kind = f"{cls.__name__}.from_config: argument"
                text = str(errors.unknown_name(kind, name, known))
                raise errors.UnknownArgumentError(text)
        return cls(**config)

    def __repr__(self) -> str:
        pairs = self.get_config().items()
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in pairs)})"


class FixedLossScale(LossScale):
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

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        owner, name, remedy = "FixedLossScale", "loss_scale_value", "give the factor"
        value = loss_scale_value
        if strict:  # arguments-checked
            fine = isinstance(value, int | float)
            require(owner, name, value, fine, "an int or float", remedy)
            require(owner, name, value, not value < 1, "a number >= 1", remedy)
            self.loss_scale_value = float(value)
            return
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


class DynamicLossScale(LossScale):
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
            scale if that is smaller. Strict: always 1.
        ceiling: the largest scale, not below the initial one; None: float32's maximum.
        growth_factor: the factor of growth, > 1; None: ``multiplier``.
        backoff_factor: the factor at an overflow, in (0, 1); None: divide by
            ``multiplier``.
        hysteresis: overflows since the last growth until the scale is lowered, >= 1.
        tolerance: the share of steps since the scale last changed that may overflow, in
            [0, 1); not together with ``hysteresis``.
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

    initial_loss_scale = property(lambda self: self.policy.initial_loss_scale)
    increment_period = property(lambda self: self.policy.increment_period)
    multiplier = property(lambda self: self.policy.multiplier)
    floor = property(lambda self: self.policy.floor)
    ceiling = property(lambda self: self.policy.ceiling)
    growth_factor = property(lambda self: self.policy.growth)
    backoff_factor = property(
        lambda self: self.policy.backoff_factor or 1.0 / self.policy.multiplier
    )
    hysteresis = property(lambda self: self.policy.hysteresis)
    tolerance = property(lambda self: self.policy.tolerance)

    @property
    def good_steps(self) -> int:  # type: ignore[override]
        """Finite steps since the scale last changed."""
        return int(self.state.good_steps)

    # Code written for TensorFlow reads these names.
    _initial_loss_scale = initial_loss_scale
    _increment_period = increment_period
    _multiplier = multiplier
    _current_loss_scale = property(lambda self: self())
    _num_good_steps = good_steps

    def __call__(self) -> np.float32:
        """Return the current scale."""
        return np.float32(self.state.loss_scale)

    def update(self, grads: Any) -> tuple[None, bool]:
        """Update the scale; return None, and whether all gradients are finite."""
        gradients = list(flat(grads))
        if self.strict:
            require_dense_shapes(gradients)
        finite = all([is_finite(gradient) for gradient in gradients])
        self.move(finite)
        return None, finite

    def move(self, finite: bool) -> None:
        """Update the scale after one step."""
        self.state = scalers.step_dynamic(self.policy, self.state, finite)

    def variables(self) -> list[Array]:
        """Return the scale and the good steps; with patience, its two counts too."""
        numbers = self.state if self.policy.is_patient else self.state[:2]
        return [np.asarray(self()), *map(np.asarray, numbers[1:])]

    def at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        return bool(self() <= np.float32(self.policy.floor))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor that differ from their defaults."""
        defaults = dict(self.policy._field_defaults)
        defaults["floor"] = min(1.0, self.policy.initial_loss_scale)
        config = self.policy._asdict()
        if self.strict:
            return {key: config[key] for key in list(config)[:3]}
        chosen = [k for k, v in config.items() if k not in defaults or v != defaults[k]]
        return {key: config[key] for key in chosen}

    def __repr__(self) -> str:
        """Return the scale and the good steps, then the arguments."""
        state = {"current_loss_scale": self(), "num_good_steps": self.good_steps}
        shown = {**state, **self.get_config()}.items()
        return f"{type(self).__name__}({', '.join(f'{k}={v}' for k, v in shown)})"


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

    SUPPORTED_ALGOS: ClassVar[list[str]] = ["backoff", "logmax"]

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        self.algorithm, self.policy = scalers.automatic_policy(
            algorithm, params, strict
        )
        self.strict = strict
        self.tuple = scalers.start_automatic(self.policy)

    @property
    def loss_scale(self) -> np.float32:
        """The current scale."""
        return np.float32(self.tuple.loss_scale)

    @property
    def state(self) -> dict[str, Any]:
        """The scaler's state by name."""
        return dict(self.tuple._asdict())

    def at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        return bool(self.loss_scale <= np.float32(self.policy.scale_min))

    def update_op(self, has_nan: Any, amax: Any) -> int:
        """Update the scale after a step; return the number of steps so far.

        Raises:
            OutOfRangeError: a ValueError; ``has_nan`` is no bool, or ``amax`` negative.
            DtypeError: strict LogMax (logmax-overflow) with an array of float64.
        """
        owner, remedy = "AutomaticLossScaler.update_op", "pass those of check_grads"
        require(owner, "has_nan", has_nan, has_nan in (0, 1), "a bool", remedy)
        is_array = isinstance(amax, np.ndarray)
        fine = is_array or (isinstance(amax, Real) and not isinstance(amax, bool))
        fine = fine and (self.strict or not -math.inf < amax < 0)
        require(owner, "amax", amax, fine, "a magnitude, >= 0", remedy)
        is_double = isinstance(amax, np.ndarray | np.float64) and amax.dtype != "f4"
        if self.strict and self.algorithm == "logmax" and is_double:
            raise errors.DtypeError(
                f"{owner}: expected a float32 amax, as in the original, got "
                f"{amax.dtype}; cast it, or leave strict off."
            )
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
        summed.

        Raises:
            DtypeError: a TypeError; gradients of several dtypes, or of integers.
        """
        owner = "AutomaticLossScaler.check_grads"
        pairs = list(grads_and_vars)
        present = [
            np.asarray(arrays.values_of(gradient))
            for gradient, _ in (arrays.as_pairs(pairs, owner) if pairs else [])
            if gradient is not None
        ]
        dtypes = sorted({str(values.dtype) for values in present})
        if len(dtypes) > 1:
            raise errors.DtypeError(
                f"{owner}: expected gradients of one dtype, got {', '.join(dtypes)}; "
                "cast them to one dtype first."
            )
        has_nan, amax = False, -np.inf
        for values in present:
            arrays.require_floats(values.dtype, owner)
            for value in np.abs(values).ravel().tolist():
                has_nan = has_nan or value != value
                amax = max(amax, value)
        dtype = present[0].dtype if present else np.dtype(np.float32)
        return np.bool_(has_nan), np.asarray(amax, dtype)


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return the loss scale for a number, "dynamic", a loss scale, or None (no scale).

    Raises:
        ValueError: any other identifier.
    """
    if isinstance(identifier, Real):
        return FixedLossScale(identifier, strict)  # type: ignore[arg-type]
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise errors.UnknownNameError(
        f"loss_scale: expected a number, 'dynamic' or a loss scale, got {identifier!r}"
        "; MixedPrecisionOptimizerWrapper takes an AutomaticLossScaler."
    )


def flat(nest: Any) -> Iterator[Gradient]:
    """Yield the gradients in nested lists, tuples and mappings."""
    if isinstance(nest, Mapping):
        nest = list(nest.values())
    if isinstance(nest, list | tuple) and not isinstance(nest, Rows):
        for entry in nest:
            yield from flat(entry)
    else:
        yield nest


def require_dense_shapes(gradients: Iterable[Gradient]) -> None:
    """Strict (dynamic-scale-dense-shape): raise for rows without a dense shape."""
    for gradient in gradients:
        if isinstance(gradient, Rows) and gradient.dense_shape is None:
            raise errors.UnsupportedError(
                "DynamicLossScale: expected a dense shape of a sparse gradient, as in "
                "the original, got None; give it, or leave strict off."
            )


# -- wrappers --------------------------------------------------------------------------


class Verdict(NamedTuple):
    """Result of the finite check of a step.

    Attributes:
        nonfinite: names of the variables whose gradients are not finite.
        finite: whether all gradients, and their norm if it was computed, are finite.
        norm: the global norm, float32; None without clipping, or if a gradient is not
            finite.
        amax: inputs of an automatic scaler: has_nan and the largest magnitude.
    """

    nonfinite: list[str]
    finite: bool
    norm: Array | None = None
    amax: tuple[Any, Any] | None = None


class ScalingWrapper(Wrapper):
    """A wrapper that skips a step if its gradients are not finite.

    The scale is updated after the variables, so a step that raises does not change it.
    """

    is_unscaled: bool | None = None
    """Whether gradients were unscaled by hand; None if the loss was not scaled so."""
    scale_object: Any

    def __init__(
        self,
        owner: str,
        inner_optimizer: Any,
        at_floor: str,
        floor_patience: int,
        clip_norm: float | None,
        strict: bool,
    ) -> None:
        if not isinstance(inner_optimizer, Optimizer):
            raise errors.NotScalableError(
                f"{owner}: expected a lockstep.reference optimizer, got "
                f"{type(inner_optimizer).__name__}; pass one to scale the loss of."
            )
        scalers.check_options(owner, clip_norm, at_floor, floor_patience)
        if not strict and "unscale" in stages_of(inner_optimizer):  # arguments-checked
            raise errors.UnsupportedError(
                f"{owner}: expected an optimizer whose loss is not scaled yet, got "
                f"{type(inner_optimizer).__name__}; leave one of the scales out."
            )
        self.owner = owner
        self.inner_optimizer = inner_optimizer
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.clip_norm = clip_norm
        self.strict = strict
        self.skipped_steps = self.skipped_in_a_row = 0
        self.last_step = scalers.ScaledStepReport(*NO_STEP)

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        raise NotImplementedError

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        raise NotImplementedError

    def move_scale(self, verdict: Verdict) -> None:
        """Update the scale after a step."""
        raise NotImplementedError

    def scale_gradient(self, gradient: Gradient) -> Gradient:
        """Return a gradient times the scale: the gradient of the scaled loss."""
        raise NotImplementedError

    def scaled(self, loss: Any) -> Any:
        """Return a loss times the scale; a loss that is not callable stays as it is."""
        if not callable(loss):
            return loss
        return lambda: [
            g(self.loss_scale) if callable(g) else self.scale_gradient(g)
            for g in loss()
        ]

    def reciprocal(self) -> np.float32:
        """Return 1 / scale, rounded to float32."""
        with np.errstate(all="ignore"):
            return np.float32(1) / self.loss_scale

    def scale_loss(self, loss: Any) -> Any:
        """Return a loss times the scale.

        A loss of the reference is a function that returns gradients. They are divided
        by the scale once, by :meth:`unscale_gradients` or by ``apply_gradients``,
        whichever is called first. A number is multiplied by the scale.

        Args:
            loss: a function that returns gradients, or a number.
        """
        self.is_unscaled = False
        return self.scaled(loss) if callable(loss) else loss * self.loss_scale

    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """Return the gradients of a scaled loss divided by the scale: g x fl32(1 / s).

        ``apply_gradients`` then does not unscale them again. Half precision becomes
        float32, None stays None, and sparse gradients stay sparse.

        Args:
            gradients: the gradients of a list of variables.

        Raises:
            UnscaledTwiceError: a RuntimeError; a second call before the step.
            MalformedPairsError, DtypeError: TypeErrors; not a list of real gradients.
        """
        owner = f"{self.owner}.unscale_gradients"
        is_one = isinstance(gradients, np.ndarray | Rows)
        is_list = isinstance(gradients, Iterable) and not is_one
        entries = list(gradients) if is_list else []
        if not is_list or any(type(entry) is tuple for entry in entries):
            raise errors.MalformedPairsError(
                f"{owner}: expected a list of gradients, without their variables, got "
                f"{gradients!r:.80}; pass what the loss returned."
            )
        if self.is_unscaled:
            raise errors.UnscaledTwiceError(
                f"{owner}: expected one call before the step, got a second one; take "
                "the step first, or call scale_loss(loss) to begin again."
            )
        for gradient in entries:
            if gradient is not None:
                arrays.require_floats(arrays.values_of(gradient).dtype, owner)
        self.is_unscaled = True
        return [self.unscale(gradient) for gradient in entries]

    def unscale(self, gradient: Gradient) -> Gradient:
        """Return a gradient times 1 / scale; half precision becomes float32."""
        if gradient is None:
            return None
        is_half = arrays.values_of(gradient).dtype == np.float16
        wide = widen(gradient) if is_half else gradient
        return times(wide, self.reciprocal(), self.strict)  # multitask-subnormals

    def unscaled_once(self, pairs: Pairs) -> Pairs:
        """Return the pairs, unscaled if ``scale_loss`` was called since the last step.

        Gradients that were unscaled by hand stay as they are.
        """
        divides, self.is_unscaled = self.is_unscaled is False, None
        return [(self.unscale(g), v) for g, v in pairs] if divides else pairs

    def known_as(self, variable: Variable) -> Variable:
        """Return the user's variable for ``variable``, which may be its master."""
        return variable

    def judge(self, pairs: Pairs) -> Verdict:
        """Check the gradients of a step, and their norm if it is to be clipped."""
        names = [self.known_as(v).name for g, v in pairs if not is_finite(g)]
        if names or self.clip_norm is None:
            return Verdict(names, not names)
        norm = clipping.global_norm([gradient for gradient, _ in pairs])
        return Verdict(names, bool(np.isfinite(norm)), norm)

    def clipped(self, pairs: Pairs, norm: Array | None) -> tuple[Pairs, float | None]:
        """Return the pairs, clipped to ``clip_norm``, and the clipping factor."""
        if self.clip_norm is None or norm is None:
            return pairs, None
        # Below the limit the factor is exactly 1: c (1 / c) is not 1 for every c.
        if not norm > self.clip_norm:
            return pairs, 1.0
        factor = clipping.clip_factor(norm, self.clip_norm)
        gradients = clipping.scale_gradients([g for g, _ in pairs], factor)
        variables = [variable for _, variable in pairs]
        return list(zip(gradients, variables, strict=True)), float(factor)

    def apply_or_skip(self, pairs: Pairs, update: Callable[[Pairs], None]) -> None:
        """Call ``update`` with the clipped pairs unless the step is skipped."""
        before, verdict = float(self.loss_scale), self.judge(pairs)
        applied = verdict.finite or not self.skips
        factor = None
        if applied:
            pairs, factor = self.clipped(pairs, verdict.norm)
            update(pairs)
        else:
            self.inner_optimizer.note_no_gradients()
        self.move_scale(verdict)
        self.last_step = scalers.report(
            getattr(self.inner_optimizer, "last_step", None) if applied else None,
            [self.known_as(variable).name for _, variable in pairs],
            verdict.nonfinite,
            (before, float(self.loss_scale)),
            applied,
            None if verdict.norm is None else float(verdict.norm),
            factor,
            [self.known_as(variable).name for g, variable in pairs if g is None],
        )
        self.count_skips(applied, verdict.nonfinite)

    def count_skips(self, applied: bool, nonfinite: list[str]) -> None:
        """Count skips; warn or raise if the scale is at its floor and they go on."""
        skips = self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1
        self.skipped_steps += not applied
        is_quiet = self.at_floor == "ignore" or skips < self.floor_patience
        scale = self.scale_object
        if is_quiet or not (isinstance(scale, float) or scale.at_floor()):
            return
        names = ", ".join(nonfinite) or "the norm of all gradients"
        text = (
            f"{self.owner}: expected a finite step now and then, got {skips} skipped "
            f"in a row at loss scale {self.loss_scale:g}, not finite: {names}; look at "
            "these gradients, or lower the floor."
        )
        if self.at_floor == "raise":
            raise errors.ScaleStalledError(text)
        if skips == self.floor_patience:
            errors.warn_user(text)

    def note_no_gradients(self) -> None:
        """Set ``last_step`` to ``NO_GRADIENTS``, also in the wrappers inside."""
        super().note_no_gradients()
        self.last_step = scalers.ScaledStepReport(*NO_GRADIENTS)

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the wrapped optimizer; strict: None."""
        # loss-scale-slots, masters-slots
        return None if self.strict else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer; strict: none."""
        return [] if self.strict else super().get_slot_names()

    def variables(self) -> list[Array]:
        """Return the wrapped optimizer's state, the scale and the counts of skips.

        Strict: an empty list.
        """
        if self.strict:
            return []
        scale: list[Array] = []
        if isinstance(self.scale_object, AutomaticLossScaler):
            scale = [np.asarray(number) for number in self.scale_object.tuple]
        elif isinstance(self.scale_object, LossScale):
            scale = self.scale_object.variables()
        counts = np.asarray(self.skipped_in_a_row), np.asarray(self.skipped_steps)
        return [*super().variables(), *scale, *counts]


class MixedPrecisionLossScaleOptimizer(ScalingWrapper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    ``compute_gradients`` returns the gradients of loss x scale, each times 1 / scale,
    which is rounded to float32. If all gradients are finite, ``apply_gradients`` clips
    them to ``clip_norm`` and ``opt`` applies them; otherwise no variable and no
    optimizer state changes. Then the scale is updated once.

    Args:
        opt: any optimizer or wrapper of the reference.
        loss_scale: a number >= 1, ``dynamic``, or a loss scale.
        at_floor: "warn", "raise" or "ignore" when the scale is at its floor and
            ``floor_patience`` steps in a row were skipped.
        floor_patience: steps.
        strict: as in TensorFlow 1.15: with a fixed scale, non-finite gradients are
            applied, float16 is refused, ``get_slot`` returns None, ``variables()`` is
            empty, subnormals are flushed.
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
        at_floor: str = "warn",
        floor_patience: int = PATIENCE,
        strict: bool = False,
        *,
        clip_norm: float | None = None,
    ) -> None:
        owner = "MixedPrecisionLossScaleOptimizer"
        super().__init__(owner, opt, at_floor, floor_patience, clip_norm, strict)
        if strict and isinstance(opt, MultitaskOptimizerWrapper):  # multitask-nesting
            raise errors.NotScalableError(
                f"{owner}: expected an optimizer, got a MultitaskOptimizerWrapper; "
                "leave strict off to nest wrappers."
            )
        self.scale_object = get(loss_scale, strict)
        if self.scale_object is None:
            raise errors.MissingLossScaleError(
                f"{owner}: expected a loss_scale, got None; give a number."
            )

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        return np.float32(self.scale_object())

    def compute_gradients(
        self,
        loss: Callable[[], Iterable[Gradient]],
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: float | None = None,
    ) -> Pairs:
        """Pair the gradients that ``loss()`` returns with ``var_list``.

        They are multiplied by the scale and then by its reciprocal, which is the
        arithmetic of a scaled loss.
        """
        variables = list(var_list or ())
        for variable in variables:
            if self.strict and variable.dtype == np.float16:  # loss-scale-float16
                raise errors.DtypeError(
                    f"{self.owner}: expected float32, got the float16 variable "
                    f"{variable.name!r}; leave strict off."
                )
        self.is_unscaled = None
        pairs = self.inner_optimizer.compute_gradients(
            self.scaled(loss), variables, grad_loss=grad_loss
        )
        return [(times(g, self.reciprocal(), self.strict), v) for g, v in pairs]

    def scale_gradient(self, gradient: Gradient) -> Gradient:
        """Return a gradient times the scale: the gradient of the scaled loss."""
        return times(gradient, self.loss_scale, self.strict)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Apply unscaled gradients if they are finite, then update the scale.

        A skipped step does not advance ``global_step``.
        """
        # loss-scale-float16: by default, float16 variables may have float32 gradients.
        pairs = arrays.check_pairs(grads_and_vars, self.owner, not self.strict)
        arrays.check_counter(global_step, self.owner)
        pairs = self.unscaled_once(pairs)

        def update(pairs: Pairs) -> None:
            narrow = [(arrays.cast(gradient, v.dtype), v) for gradient, v in pairs]
            self.inner_optimizer.apply_gradients(narrow, global_step, name)

        self.apply_or_skip(pairs, update)

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        is_fixed = isinstance(self.scale_object, FixedLossScale)
        return not (self.strict and is_fixed)  # loss-scale-fixed

    def judge(self, pairs: Pairs) -> Verdict:
        """Check the gradients of a step."""
        if self.strict and isinstance(self.scale_object, DynamicLossScale):
            require_dense_shapes([gradient for gradient, _ in pairs])
        return super().judge(pairs)

    def move_scale(self, verdict: Verdict) -> None:
        """Update the scale after a step."""
        self.scale_object.move(verdict.finite)
