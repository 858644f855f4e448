"""Float32 master weights over NumPy variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import GATE_OP, Array, Gradient
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.messages.nouns import REFERENCE
from lockstep.messages.scaling.loss_scaling import PATIENCE
from lockstep.messages.workers.agn import refuse_masters_around
from lockstep.quirks import quirks_of
from lockstep.reference.base.pairs import Pairs, check_counter, check_pairs, listed
from lockstep.reference.clipping.variable_clipping import share_row_limits
from lockstep.reference.masters.regularizer import REGISTERED, add_penalty
from lockstep.reference.optimizers.classes import Optimizer
from lockstep.reference.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.reference.scaling.loss_scale import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
)
from lockstep.reference.scaling.skipping import SkippingWrapper, Verdict
from lockstep.reference.tensors.half import (
    follow,
    saturating_cast,
    scale_in_dtype,
    times,
    widen,
)
from lockstep.reference.tensors.variable import Variable

__all__ = ["MixedPrecisionOptimizerWrapper"]


@documented
class MixedPrecisionOptimizerWrapper(SkippingWrapper):
    """Train half-precision variables through float32 masters, with a scaled loss.

    ``compute_gradients`` pairs each master with g: the gradient of loss x scale in the
    variable's dtype, cast to float32, plus scale x the gradient of its regularizer at
    the master, all times 1 / scale. ``apply_gradients`` updates the masters with
    ``optimizer``. Then each variable becomes its master, rounded to the variable's
    dtype and clamped to its largest magnitude. Variables of other dtypes are their own
    masters. Both methods first copy elements of a variable that were written from
    outside into its master.

    Args:
        optimizer: any optimizer or wrapper of the reference.
        strict: as in OpenSeq2Seq: only floats and automatic scalers can be used, absent
            float16 gradients are refused, a static scale applies gradients that are not
            finite, ``get_slot`` and ``variables()`` see nothing.

    Raises:
        ValueError: ``optimizer`` is no optimizer, an argument out of range.
    """

    owner = words.WRAPPER

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: Any = None,
        *,
        clip_norm: float | None = None,
        at_floor: str = "warn",
        floor_patience: int = PATIENCE,
        strict: bool = False,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise not_an_optimizer(words.WRAPPER, optimizer, REFERENCE)
        quirks = quirks_of(strict)
        if not quirks.arguments_unchecked:
            refuse_masters_around(optimizer)
        words.check_clip_norm(clip_norm)
        words.check_at_floor(at_floor, floor_patience)
        super().__init__(optimizer, at_floor, floor_patience, clip_norm, quirks)
        as_given = quirks.masters_scale_type
        self.scale_object = loss_scale if as_given else get_scale(loss_scale)
        self.masters: dict[Variable, Variable] = {}
        self.models: dict[Variable, Variable] = {}

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        return self.current_scale()

    def current_scale(self) -> np.float32:
        """Return the current loss scale, float32; strict: raise if it is unusable."""
        scale = self.scale_object
        if isinstance(scale, LossScale):
            return scale()
        if isinstance(scale, AutomaticLossScaler):
            return scale.loss_scale
        number = words.scale_number(scale, self.quirks.masters_scale_type)
        if number is None:
            raise refusals.UNUSABLE.error(loss_scale=scale)
        with np.errstate(over="ignore"):
            return np.float32(number)

    def master(self, variable: Variable) -> Variable:
        """Return the master of a variable, or the variable itself if it has none."""
        return self.masters.get(variable, variable)

    def compute_gradients(
        self,
        loss: Callable[[], Iterable[Gradient]],
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: float | None = None,
    ) -> Pairs:
        """Pair the unscaled float32 gradients of ``loss()`` with the masters."""
        scale = self.current_scale()
        variables = listed(var_list, self.owner)
        self.adopt_changes()
        self.is_unscaled = None
        pairs = self.inner_optimizer.compute_gradients(
            self.scaled(loss),
            variables,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        reciprocal = self.reciprocal()
        return [
            (times(gradient, reciprocal), master)
            for gradient, master in [self.to_master(g, v, scale) for g, v in pairs]
        ]

    def scale_gradient(self, gradient: Gradient) -> Gradient:
        """Return a gradient times the scale: the gradient of the scaled loss."""
        return scale_in_dtype(gradient, self.current_scale())

    def to_master(
        self, gradient: Gradient, variable: Variable, scale: np.float32
    ) -> tuple[Gradient, Variable]:
        """Return the gradient of a variable's master, still scaled, and the master."""
        refuses = self.quirks.masters_absent and self.trains_master(variable)
        if gradient is None and refuses:
            raise refusals.ABSENT_HALF.error(name=variable.name)
        wide, master = self.for_master(gradient, variable)
        regularizer = REGISTERED.get(variable)
        if regularizer is not None and master is not variable:
            wide = add_penalty(wide, regularizer(master) * scale)
        return wide, master

    def for_master(
        self, gradient: Gradient, variable: Variable
    ) -> tuple[Gradient, Variable]:
        """Return a gradient in its master's dtype, and the master, made if missing."""
        if not self.trains_master(variable):
            return gradient, variable
        if variable not in self.masters:
            master = self.masters[variable] = make_master(variable)
            self.models[master] = variable
            if not self.quirks.masters_row_clipping:
                share_row_limits(variable, master, self.inner_optimizer)
        return widen(gradient), self.masters[variable]

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Update the masters if all gradients are finite, then copy them back.

        The scale is updated once. A skipped step does not advance ``global_step``.
        """
        stands_for_master = not self.quirks.masters_slots
        pairs = check_pairs(grads_and_vars, words.WRAPPER, stands_for_master)
        check_counter(global_step, words.WRAPPER)
        pairs = self.unscaled_once(pairs)
        self.adopt_changes()
        if stands_for_master:
            pairs = [self.for_master(gradient, v) for gradient, v in pairs]

        def update(pairs: Pairs) -> None:
            self.inner_optimizer.apply_gradients(pairs, global_step, name)
            self.copy_back()

        self.apply_or_skip(pairs, update)

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        only_automatic = self.quirks.masters_static_scale
        is_automatic = isinstance(self.scale_object, AutomaticLossScaler)
        return is_automatic or not only_automatic

    @property
    def _hides_slots(self) -> bool:
        """Whether slots and variables are hidden, as in the original."""
        return self.quirks.masters_slots

    def judge(self, pairs: Pairs, strict_sums: bool = False) -> Verdict:
        """Check the gradients of a step, and compute an automatic scaler's inputs.

        By default an automatic scaler treats any overflow as its own, including that of
        summed duplicate rows and of the norm. A step without any element does not
        overflow. Strict: the scaler decides by the largest stored element.
        """
        verdict, scale = super().judge(pairs, strict_sums), self.scale_object
        if not isinstance(scale, AutomaticLossScaler):
            return verdict
        if self.quirks.masters_static_scale:
            has_nan, amax = scale.check_grads(pairs)
            overflow = bool(has_nan) or bool(np.isinf(amax))
            return verdict._replace(finite=not overflow, shown=(has_nan, amax))
        has_nan, amax = scale.check_grads([(widen(g), v) for g, v in pairs])
        largest = np.finfo(np.float32).max if verdict.finite else np.float32(np.inf)
        least = np.float32(0) if verdict.finite else largest
        return verdict._replace(shown=(has_nan, np.clip(amax, least, largest)))

    def move_scale(self, verdict: Verdict) -> None:
        """Update the scale after a step."""
        scale = self.scale_object
        if isinstance(scale, AutomaticLossScaler):
            assert verdict.shown is not None
            scale.update_op(*verdict.shown)
        elif isinstance(scale, LossScale):
            scale.move(verdict.finite)

    def scale_is_at_floor(self) -> bool:
        """Return whether no overflow can lower the scale; a number is always fixed."""
        scale = self.scale_object
        return isinstance(scale, float) or bool(scale.at_floor())

    def known_as(self, variable: Variable) -> Variable:
        """Return the variable of a master; any other variable is returned as it is."""
        return self.models.get(variable, variable)

    def trains_master(self, variable: Variable) -> bool:
        """Return whether a variable is trained through a master."""
        only_float16 = self.quirks.half_precision_scalars
        return words.has_master(str(variable.dtype), only_float16)

    def adopt_changes(self) -> None:
        """Copy values that were written into variables from outside into the masters.

        Strict: nothing is copied, and the next step overwrites these values.
        """
        if self.quirks.masters_slots:
            return
        for variable, master in self.masters.items():
            master.value = follow(master.value, variable.value)

    def copy_back(self) -> None:
        """Set each variable to its master, rounded to the variable's dtype."""
        for variable, master in self.masters.items():
            variable.value = saturating_cast(master.value, variable.dtype)

    def get_name(self) -> str:
        """Return the wrapped optimizer's name with the suffix "-MP"."""
        return self.inner_optimizer.get_name() + words.SUFFIX

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the variable's master; strict: None."""
        return super().get_slot(self.master(var), name)

    def variables(self) -> list[Array]:
        """Return the masters, the wrapped optimizer's state, the scale and the counts.

        Strict: an empty list.
        """
        if self._hides_slots:
            return []
        masters = [master.value for master in self.masters.values()]
        own = [*counts_of(self.scale_object), *self.counts()]
        return [*masters, *self.inner_optimizer.variables(), *own]


def get_scale(loss_scale: Any) -> float | AutomaticLossScaler | LossScale:
    """Return the number or scale object for an argument ``loss_scale``.

    Raises:
        ValueError: another string or type, a number out of range.
    """
    if isinstance(loss_scale, str) and loss_scale == "dynamic":
        return DynamicLossScale()
    if isinstance(loss_scale, AutomaticLossScaler | DynamicLossScale | FixedLossScale):
        return loss_scale
    number = words.scale_number(loss_scale)
    if number is None:
        raise refusals.BAD_LOSS_SCALE.error(loss_scale=loss_scale)
    return number


def counts_of(scale: Any) -> list[Array]:
    """Return the state of a scale; a fixed number has none."""
    if isinstance(scale, AutomaticLossScaler):
        return [np.asarray(number) for number in scale.state.values()]
    return scale.variables() if isinstance(scale, LossScale) else []


def make_master(variable: Variable) -> Variable:
    """Return a new float32 master with the variable's value."""
    return Variable(words.master_name(variable.name), variable.value, np.float32)
