"""The loss-scaling wrapper, over NumPy variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import GATE_OP, Array, Gradient
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.nouns import REFERENCE
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.quirks import quirks_of
from lockstep.reference.base.pairs import Pairs, check_counter, check_pairs, listed
from lockstep.reference.multitask import MultitaskOptimizerWrapper
from lockstep.reference.optimizers.classes import Optimizer
from lockstep.reference.scaling.loss_scale import DynamicLossScale, FixedLossScale, get
from lockstep.reference.scaling.skipping import SkippingWrapper, Verdict
from lockstep.reference.tensors.half import narrowed, times
from lockstep.reference.tensors.variable import Variable

__all__ = ["MixedPrecisionLossScaleOptimizer"]


@documented
class MixedPrecisionLossScaleOptimizer(SkippingWrapper):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

    ``compute_gradients`` returns the gradients of loss x scale, each times 1 / scale,
    which is rounded to float32. If all gradients are finite, ``apply_gradients`` clips
    them to ``clip_norm`` and ``opt`` applies them; otherwise no variable and no
    optimizer state changes. Then the scale is updated once.

    Args:
        opt: any optimizer or wrapper of the reference.

    Raises:
        ValueError: ``opt`` is no optimizer, an argument out of range.
        TypeError: there is no ``loss_scale``.
    """

    owner = words.WRAPPER

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
        quirks = quirks_of(strict)
        is_multitask = isinstance(opt, MultitaskOptimizerWrapper)
        refused = quirks.multitask_nesting and is_multitask
        if refused or not isinstance(opt, Optimizer):
            raise not_an_optimizer(words.WRAPPER, opt, REFERENCE)
        scale = get(loss_scale, strict)
        if scale is None:
            raise refusals.MISSING_LOSS_SCALE.error()
        words.check_at_floor(at_floor, floor_patience)
        words.check_clip_norm(clip_norm, quirks.arguments_unchecked)
        super().__init__(opt, at_floor, floor_patience, clip_norm, quirks)
        self.scale_object = scale

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

        They are multiplied by the scale and then by its reciprocal, which is the
        arithmetic of a scaled loss.
        """
        variables = listed(var_list, self.owner)
        for variable in variables if self.quirks.loss_scale_float16 else []:
            if variable.dtype == np.float16:
                raise refusals.HALF_PRECISION.error(
                    what=f"the variable {variable.name!r}"
                )
        self.is_unscaled = None
        pairs = self.inner_optimizer.compute_gradients(
            self.scaled(loss),
            variables,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        reciprocal, flush = self.reciprocal(), self.quirks.multitask_subnormals
        return [(times(g, reciprocal, flush), v) for g, v in pairs]

    def scale_gradient(self, gradient: Gradient) -> Gradient:
        """Return a gradient times the scale: the gradient of the scaled loss."""
        return times(gradient, self.loss_scale, self.quirks.multitask_subnormals)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Apply unscaled gradients if they are finite, then update the scale.

        A skipped step does not advance ``global_step``.
        """
        takes_wide = not self.quirks.loss_scale_float16
        pairs = check_pairs(grads_and_vars, words.WRAPPER, takes_wide)
        check_counter(global_step, words.WRAPPER)
        pairs = self.unscaled_once(pairs)

        def update(pairs: Pairs) -> None:
            with np.errstate(over="ignore"):
                pairs = [(narrowed(gradient, v.dtype), v) for gradient, v in pairs]
            self.inner_optimizer.apply_gradients(pairs, global_step, name)

        self.apply_or_skip(pairs, update)

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        is_fixed = isinstance(self.scale_object, FixedLossScale)
        return not (self.quirks.loss_scale_fixed and is_fixed)

    @property
    def _hides_slots(self) -> bool:
        """Whether slots and variables are hidden, as in the original."""
        return self.quirks.loss_scale_slots

    def judge(self, pairs: Pairs, strict_sums: bool = False) -> Verdict:
        """Check the gradients of a step."""
        dynamic = isinstance(self.scale_object, DynamicLossScale)
        needs_shape = dynamic and self.quirks.dynamic_scale_dense_shape
        return super().judge(pairs, strict_sums or needs_shape)

    def move_scale(self, verdict: Verdict) -> None:
        """Update the scale after a step."""
        self.scale_object.move(verdict.finite)

    def scale_is_at_floor(self) -> bool:
        """Return whether no overflow can lower the scale any more."""
        return bool(self.scale_object.at_floor())

    def variables(self) -> list[Array]:
        """Return the state of the wrapped optimizer and the scale, and skip counts."""
        if self._hides_slots:
            return []
        own = [*self.scale_object.variables(), *self.counts()]
        return [*self.inner_optimizer.variables(), *own]
