"""The loss-scaling wrapper, over NumPy variables."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lockstep.interface import GATE_OP, Array, Gradient, Rows, StepReport
from lockstep.reference.clip_gradients import clip_factor, global_norm, scale_gradients
from lockstep.reference.loss_scale import (
    DynamicLossScale,
    FixedLossScale,
    get,
    is_finite,
)
from lockstep.reference.multitask import MultitaskOptimizerWrapper
from lockstep.reference.optimizers import Optimizer, Pairs, check_pairs
from lockstep.reference.variable import Variable
from lockstep.reference.zero_test import flush_subnormals
from lockstep.spec import loss_scaling as words

__all__ = ["MixedPrecisionLossScaleOptimizer"]


class MixedPrecisionLossScaleOptimizer(Optimizer):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    ``compute_gradients``: the gradients of loss x scale, each times 1 / scale, which is
    rounded to float32. ``apply_gradients``: if all gradients are finite, they are
    clipped as ``clip_norm`` says and ``opt`` applies them; otherwise nothing at all
    changes. Then the scale moves, once.

    Args:
        opt: any optimizer or wrapper of the reference.
        loss_scale: a number, "dynamic" or a loss scale.
        at_floor: "warn", "raise" or "ignore" when the scale is at its floor and
            ``floor_patience`` steps in a row were skipped.
        floor_patience: optimizer steps.
        clip_norm: > 0; n the float32 global norm of the unscaled gradients, each g
            becomes g clip_norm min(1 / n, 1 / clip_norm); n that is not finite is an
            overflow, and skipped. None: no clipping, no norm.
        strict: as in TensorFlow 1.15: under a fixed scale gradients that are not
            finite are applied, float16 is refused, ``get_slot`` and ``variables()``
            see nothing, subnormals are flushed, ``clip_norm`` is refused.

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
        *,
        clip_norm: float | None = None,
    ) -> None:
        refused = strict and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, Optimizer):
            raise words.not_an_optimizer(opt, "lockstep.reference optimizer")
        scale = get(loss_scale, strict)
        if scale is None:
            raise words.missing_loss_scale()
        words.check_at_floor(at_floor, floor_patience)
        words.check_clip_norm(clip_norm, strict)
        self.inner_optimizer = opt
        self.scale_object = scale
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict
        self.clip_norm = clip_norm
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
        norm = None if found else self.norm_of(pairs)
        finite = not found and (norm is None or bool(np.isfinite(norm)))
        applied = finite or (self.strict and isinstance(scale, FixedLossScale))
        factor = None
        if applied:
            pairs, factor = self.clipped(pairs, norm)
            self.inner_optimizer.apply_gradients(pairs, global_step, name)
        scale.move(finite)
        inner = getattr(self.inner_optimizer, "last_step", None) if applied else None
        names, scales = [v.name for _, v in pairs], (before, float(self.loss_scale))
        self.last_step = words.report(
            inner, names, found, scales, applied, as_float(norm), as_float(factor)
        )
        self.count_skips(applied, found)

    def norm_of(self, pairs: Pairs) -> Array | None:
        """Return the float32 global norm of gradients, which may overflow.

        None if ``clip_norm`` asks for none.
        """
        if self.clip_norm is None:
            return None
        present = [gradient for gradient, _ in pairs if gradient is not None]
        with np.errstate(over="ignore"):
            return global_norm(present, np.dtype(np.float32))

    def clipped(self, pairs: Pairs, norm: Array | None) -> tuple[Pairs, Array | None]:
        """Return pairs whose norm is at most ``clip_norm``, and the factor of it."""
        if self.clip_norm is None or norm is None:
            return pairs, None
        factor = clip_factor(norm, self.clip_norm)
        gradients = scale_gradients([gradient for gradient, _ in pairs], factor)
        return list(zip(gradients, [v for _, v in pairs], strict=True)), factor

    def count_skips(self, applied: bool, found: list[str]) -> None:
        """Warn, or raise, if the scale is at its floor and nothing has helped."""
        skips = self.skipped_in_a_row = 0 if applied else self.skipped_in_a_row + 1
        quiet = self.at_floor == "ignore" or skips < self.floor_patience
        if quiet or not self.scale_object.at_floor():
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
        """Return the state: the wrapped optimizer's, the scale's, the skip count."""
        if self.strict:
            return []
        own = [*self.scale_object.variables(), np.asarray(self.skipped_in_a_row)]
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


def as_float(number: Array | None) -> float | None:
    """Return a 0-d array as a float; None stays None."""
    return None if number is None else float(number)
