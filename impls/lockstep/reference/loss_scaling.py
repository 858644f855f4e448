"""Loss scaling over NumPy variables: two loss scales and the wrapper around them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from lockstep.interface import GATE_OP, Array, Gradient, Rows, StepReport
from lockstep.reference.dynamic_scale import start_dynamic, step_dynamic
from lockstep.reference.multitask import MultitaskOptimizerWrapper
from lockstep.reference.optimizers import Optimizer, Pairs, check_pairs
from lockstep.reference.rows import sum_duplicates
from lockstep.reference.variable import Variable
from lockstep.reference.zero_test import flush_subnormals
from lockstep.spec import loss_scaling as words

__all__ = [
    "DynamicLossScale",
    "FixedLossScale",
    "LossScale",
    "MixedPrecisionLossScaleOptimizer",
    "get",
]


class LossScale:
    """Base of the two: call it for the current scale, ``update`` it once a step."""

    good_steps = 0

    def __call__(self) -> np.float32:
        """Return the current scale."""
        raise NotImplementedError

    def update(self, grads: Any) -> tuple[None, bool]:
        """Look at the unscaled gradients of a step.

        Returns:
            None, and whether the gradients should be applied.
        """
        raise NotImplementedError

    def move(self, finite: bool) -> None:
        """Take note of one step."""

    def at_floor(self) -> bool:
        """Say whether no overflow can make the scale smaller."""
        return True

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        raise NotImplementedError

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Any:
        """Return a new one from what ``get_config`` returned."""
        return cls(**config)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{k}={v}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({arguments})"


class FixedLossScale(LossScale):
    """A loss scale that stays what it is.

    Args:
        loss_scale_value: int or float, >= 1; NaN and infinity pass.
        strict: without effect.

    Raises:
        ValueError: another type, or below 1.
    """

    def __init__(self, loss_scale_value: float, strict: bool = False) -> None:
        self.loss_scale_value = words.fixed_value(loss_scale_value)

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
    """A loss scale that grows after finite steps and shrinks after another one.

    ``increment_period`` finite steps in a row: scale = scale multiplier. A step that is
    not finite: scale = max(scale / multiplier, floor).

    Args:
        initial_loss_scale: the scale to begin with, > 0.
        increment_period: optimizer steps, >= 1.
        multiplier: > 1.
        floor: > 0, at most the initial scale; None: 1, or the initial scale if smaller.
        ceiling: at least the initial scale; None: the largest that float32 can hold.
        strict: as in TensorFlow 1.15: nothing is checked, an overflow raises a scale
            below 1 to 1, sparse gradients need a dense shape; no floor, no ceiling.

    Raises:
        ValueError: an argument out of range.
    """

    def __init__(
        self,
        initial_loss_scale: float = 2.0**15,
        increment_period: int = 2000,
        multiplier: float = 2.0,
        floor: float | None = None,
        ceiling: float | None = None,
        strict: bool = False,
    ) -> None:
        arguments = (initial_loss_scale, increment_period, multiplier)
        self.policy = words.dynamic_policy(*arguments, floor, ceiling, strict)
        self.state = start_dynamic(self.policy)
        self.strict = strict

    initial_loss_scale = property(lambda self: self.policy.initial_loss_scale)
    increment_period = property(lambda self: self.policy.increment_period)
    multiplier = property(lambda self: self.policy.multiplier)
    floor = property(lambda self: self.policy.floor)
    ceiling = property(lambda self: self.policy.ceiling)

    @property
    def good_steps(self) -> int:  # type: ignore[override]
        """Finite steps since the scale last moved."""
        return self.state.good_steps

    def __call__(self) -> np.float32:
        """Return the current scale."""
        return self.state.loss_scale

    def update(self, grads: Any) -> tuple[None, bool]:
        """Move the scale; the gradients should be applied if all are finite."""
        finite = all([is_finite(g, self.strict) for g in flat(grads)])
        self.move(finite)
        return None, finite

    def move(self, finite: bool) -> None:
        """Take note of one step."""
        self.state = step_dynamic(self.policy, self.state, finite)

    def at_floor(self) -> bool:
        """Say whether no overflow can make the scale smaller."""
        return bool(self() <= np.float32(self.policy.floor))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return words.dynamic_config(self.policy, self.strict)


def get(identifier: Any, strict: bool = False) -> LossScale | None:
    """Return the loss scale that a number, "dynamic" or a loss scale stands for.

    Raises:
        ValueError: anything else, but None, which stays None.
    """
    if isinstance(identifier, int | float):
        return FixedLossScale(identifier)
    if isinstance(identifier, str) and identifier == "dynamic":
        return DynamicLossScale(strict=strict)
    if identifier is None or isinstance(identifier, LossScale):
        return identifier
    raise words.bad_identifier(identifier)


class MixedPrecisionLossScaleOptimizer(Optimizer):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    ``compute_gradients``: the gradients of loss x scale, each times 1 / scale, which is
    rounded to float32. ``apply_gradients``: if all gradients are finite, ``opt``
    applies them; otherwise nothing at all changes. Then the scale moves, once.

    Args:
        opt: any optimizer or wrapper of the reference.
        loss_scale: a number, "dynamic" or a loss scale.
        at_floor: "warn" or "raise" when the scale is at its floor and
            ``floor_patience`` steps in a row were skipped.
        floor_patience: optimizer steps.
        strict: as in TensorFlow 1.15: under a fixed scale gradients that are not
            finite are applied, float16 is refused, ``get_slot`` and ``variables()``
            see nothing, subnormals are flushed.

    Raises:
        ValueError: ``opt`` is no optimizer, an argument out of range.
        TypeError: ``loss_scale`` is None.
    """

    def __init__(
        self,
        opt: Optimizer,
        loss_scale: Any,
        at_floor: str = "warn",
        floor_patience: int = words.PATIENCE,
        strict: bool = False,
    ) -> None:
        refused = strict and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, Optimizer):
            raise words.not_an_optimizer(opt, "lockstep.reference optimizer")
        scale = get(loss_scale, strict)
        if scale is None:
            raise words.missing_loss_scale()
        words.check_at_floor(at_floor, floor_patience)
        self.inner_optimizer = opt
        self.scale_object = scale
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict
        self.skipped_in_a_row = 0
        self.last_step: StepReport | None = None

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        return self.scale_object()

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

        They are multiplied by the scale and then by its reciprocal: the arithmetic
        of a scaled loss.
        """
        variables = None if var_list is None else list(var_list)
        for variable in (variables or []) if self.strict else []:
            if variable.dtype == np.float16:
                raise words.half_precision(f"the variable {variable.name!r}")

        def scaled_loss() -> list[Gradient]:
            return [times(g, self.loss_scale, self.strict) for g in loss()]

        pairs = self.inner_optimizer.compute_gradients(scaled_loss, variables)
        with np.errstate(all="ignore"):
            reciprocal = np.float32(1) / self.loss_scale
        return [(times(g, reciprocal, self.strict), v) for g, v in pairs]

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Apply unscaled gradients if they are finite; move the scale.

        A skipped step does not advance ``global_step``.
        """
        pairs = check_pairs(grads_and_vars, words.WRAPPER)
        scale, before = self.scale_object, float(self.loss_scale)
        strict_sums = self.strict and isinstance(scale, DynamicLossScale)
        found = [v.name for g, v in pairs if not is_finite(g, strict_sums)]
        fixed = self.strict and isinstance(scale, FixedLossScale)
        applied = fixed or not found
        if applied:
            self.inner_optimizer.apply_gradients(pairs, global_step, name)
        scale.move(not found)
        inner = getattr(self.inner_optimizer, "last_step", None) if applied else None
        names, after = [v.name for _, v in pairs], float(self.loss_scale)
        self.last_step = words.report(inner, names, found, (before, after), applied)
        self.count_skips(applied, found)

    def count_skips(self, applied: bool, found: list[str]) -> None:
        """Warn, or raise, if the scale is at its floor and nothing has helped."""
        skips = self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1
        if skips < self.floor_patience or not self.scale_object.at_floor():
            return
        error = words.stalled(skips, float(self.loss_scale), found)
        if self.at_floor == "raise":
            raise error
        if skips == self.floor_patience:
            warnings.warn(str(error), stacklevel=3)

    def get_name(self) -> str:
        """Return the wrapped optimizer's name."""
        return self.inner_optimizer.get_name()

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the wrapped optimizer.

        # Quirk: docs/differences.md#loss-scale-slots. Strict: None.
        """
        return None if self.strict else self.inner_optimizer.get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer; strict: none."""
        return [] if self.strict else self.inner_optimizer.get_slot_names()

    def variables(self) -> list[Array]:
        """Return the state of the wrapped optimizer, then of a dynamic scale."""
        if self.strict:
            return []
        scale = self.scale_object
        dynamic = isinstance(scale, DynamicLossScale)
        own = [np.asarray(scale()), np.asarray(scale.good_steps)] if dynamic else []
        return [*self.inner_optimizer.variables(), *own]

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)


def times(gradient: Gradient, factor: np.float32, flush: bool = False) -> Gradient:
    """Return a gradient times a float32 factor, rounded once to its own dtype.

    ``flush``: subnormals count as zero before and after, as in the original's kernels.
    """
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=product(gradient.values, factor, flush))
    return product(gradient, factor, flush)


def product(values: Array, factor: np.float32, flush: bool) -> Array:
    """Return values times a factor: see :func:`times`."""
    with np.errstate(all="ignore"):
        values = flush_subnormals(values) if flush else values
        wide = values.astype(np.promote_types(values.dtype, np.float32))
        result = np.asarray(wide * factor).astype(values.dtype)
    return flush_subnormals(result) if flush else result


def is_finite(gradient: Gradient, strict: bool = False) -> bool:
    """Say whether every element is finite, duplicate rows summed; absent is finite.

    Strict: rows without a dense shape are refused.
    """
    if gradient is None:
        return True
    if isinstance(gradient, Rows):
        if strict and gradient.dense_shape is None:
            raise words.without_dense_shape("a sparse gradient")
        with np.errstate(all="ignore"):
            gradient = sum_duplicates(gradient).values
    words.check_gradient_dtype(str(gradient.dtype))
    return bool(np.all(np.isfinite(gradient)))


def flat(nest: Any) -> Iterator[Gradient]:
    """Yield the gradients of a nest of lists, tuples and mappings."""
    if isinstance(nest, Mapping):
        nest = list(nest.values())
    if isinstance(nest, list | tuple) and not isinstance(nest, Rows):
        for entry in nest:
            yield from flat(entry)
    else:
        yield nest
