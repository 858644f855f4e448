"""Float32 master weights over NumPy variables: the wrapper and its regularizers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from lockstep.interface import GATE_OP, Array, Gradient, Rows, StepReport
from lockstep.reference.automatic_scaler import AutomaticLossScaler
from lockstep.reference.clip_gradients import (
    clip_factor,
    global_norm,
    scale_gradients,
)
from lockstep.reference.loss_scale import (
    DynamicLossScale,
    FixedLossScale,
    LossScale,
    is_finite,
)
from lockstep.reference.loss_scale_optimizer import times
from lockstep.reference.masters import add_penalty, saturate_cast
from lockstep.reference.optimizers import Optimizer, Pairs, check_pairs
from lockstep.reference.variable import Variable
from lockstep.spec import mixed_precision as words

__all__ = ["MixedPrecisionOptimizerWrapper", "mp_regularizer_wrapper"]

Regularizer = Callable[[Variable], Array]

REGISTERED: WeakKeyDictionary[Variable, Regularizer] = WeakKeyDictionary()
"""Half-precision weight -> its regularizer, for as long as the weight lives."""


class MixedPrecisionOptimizerWrapper(Optimizer):
    """Train half-precision variables through float32 masters, with a scaled loss.

    ``compute_gradients``: g = (gradient of loss x scale, in the variable's dtype) cast
    to float32, plus scale x the gradient of its regularizer at the master, all times
    1 / scale; paired with the master. ``apply_gradients``: ``optimizer`` updates the
    masters, then variable = master rounded to its dtype, clamped to its largest
    magnitude. Variables of other dtypes are their own masters.

    Args:
        optimizer: any optimizer or wrapper of the reference.
        loss_scale: None (1), a number, "dynamic", an ``AutomaticLossScaler`` or a loss
            scale.
        clip_norm: the largest global norm of the unscaled gradients, > 0; None: any.
        strict: as in OpenSeq2Seq, quirks included: only floats and automatic scalers
            can be used, absent float16 gradients are refused, a static scale applies
            gradients that are not finite, ``get_slot`` and ``variables()`` see nothing.

    Raises:
        ValueError: ``optimizer`` is no optimizer, an argument out of range.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: Any = None,
        *,
        clip_norm: float | None = None,
        strict: bool = False,
    ) -> None:
        if not isinstance(optimizer, Optimizer):
            raise words.not_an_optimizer(optimizer, "lockstep.reference optimizer")
        words.check_clip_norm(clip_norm)
        self.inner_optimizer = optimizer
        self.scale_object = loss_scale if strict else get_scale(loss_scale)
        self.clip_norm = clip_norm
        self.strict = strict
        self.masters: dict[Variable, Variable] = {}
        self.last_step: StepReport | None = None

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        return self.current_scale()

    def current_scale(self) -> np.float32:
        """Return the current loss scale; strict: raise if it cannot be used."""
        scale = self.scale_object
        if isinstance(scale, LossScale):
            return scale()
        if isinstance(scale, AutomaticLossScaler):
            return scale.loss_scale
        number = words.scale_number(scale, self.strict)
        if number is None:
            raise words.unusable(scale)
        with np.errstate(over="ignore"):
            return np.float32(number)

    def master(self, variable: Variable) -> Variable:
        """Return the master of a variable: itself where it has no other."""
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

        def scaled_loss() -> list[Gradient]:
            return [scale_in_dtype(g, scale) for g in loss()]

        pairs = self.inner_optimizer.compute_gradients(scaled_loss, var_list)
        with np.errstate(all="ignore"):
            reciprocal = np.float32(1) / scale
        return [
            (times(gradient, reciprocal), master)
            for gradient, master in [self.to_master(g, v, scale) for g, v in pairs]
        ]

    def to_master(
        self, gradient: Gradient, variable: Variable, scale: np.float32
    ) -> tuple[Gradient, Variable]:
        """Return the still scaled gradient of a variable's master, and the master."""
        if not words.has_master(str(variable.dtype), self.strict):
            return gradient, variable
        # Quirk: docs/differences.md#masters-absent
        if gradient is None and self.strict:
            raise words.absent_half(variable.name)
        master = self.masters.setdefault(variable, make_master(variable))
        wide = None if gradient is None else widen(gradient)
        regularizer = REGISTERED.get(variable)
        if regularizer is not None:
            wide = add_penalty(wide, regularizer(master) * scale)
        return wide, master

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Update the masters if all gradients are finite, then copy them back.

        The scale moves once. A skipped step does not advance ``global_step``.
        """
        pairs = check_pairs(grads_and_vars, words.WRAPPER)
        before = float(self.loss_scale)
        names = {master: v.name for v, master in self.masters.items()}
        found = [names.get(v, v.name) for g, v in pairs if not is_finite(g)]
        overflow = self.move_scale(pairs, found)
        # Quirk: docs/differences.md#masters-static-scale
        static = not isinstance(self.scale_object, AutomaticLossScaler)
        applied = (self.strict and static) or not overflow
        norm = None
        if self.clip_norm is not None:
            pairs, norm = clipped(pairs, self.clip_norm)
        if applied:
            self.inner_optimizer.apply_gradients(pairs, global_step, name)
            self.copy_back()
        inner = getattr(self.inner_optimizer, "last_step", None) if applied else None
        told = [names.get(v, v.name) for _, v in pairs]
        scales = before, float(self.loss_scale)
        self.last_step = words.report(inner, told, found, scales, applied, norm)

    def move_scale(self, pairs: Pairs, found: list[str]) -> bool:
        """Let the scale look at the gradients; say whether they must be skipped."""
        scale = self.scale_object
        if isinstance(scale, AutomaticLossScaler):
            has_nan, amax = scale.check_grads(pairs)
            if not self.strict:
                amax = np.maximum(amax, np.float32(0))  # no element at all: -inf
            scale.update_op(has_nan, amax)
            overflow = bool(has_nan) or bool(np.isinf(amax))
            return overflow or (bool(found) and not self.strict)
        if isinstance(scale, LossScale):
            scale.move(not found)
        return bool(found)

    def copy_back(self) -> None:
        """Give each variable the value of its master."""
        for variable, master in self.masters.items():
            variable.value = saturate_cast(master.value, variable.dtype)

    def get_name(self) -> str:
        """Return the wrapped optimizer's name and "-MP"."""
        return self.inner_optimizer.get_name() + words.SUFFIX

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the variable's master.

        # Quirk: docs/differences.md#masters-slots. Strict: None.
        """
        if self.strict:
            return None
        return self.inner_optimizer.get_slot(self.master(var), name)

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer; strict: none."""
        return [] if self.strict else self.inner_optimizer.get_slot_names()

    def variables(self) -> list[Array]:
        """Return the masters, then the state of the wrapped optimizer; strict: none."""
        if self.strict:
            return []
        masters = [master.value for master in self.masters.values()]
        return [*masters, *self.inner_optimizer.variables()]

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer":
            raise AttributeError(name)
        return getattr(self.inner_optimizer, name)


def mp_regularizer_wrapper(regularizer: Regularizer) -> Callable[[Variable], Any]:
    """Keep a regularizer of half-precision weights for the wrapper of the optimizer.

    A loss here is its gradients, so ``regularizer(weight)`` returns the gradient of the
    penalty at ``weight``.

    Returns:
        A function of a weight. In half precision it registers the weight and returns
        None: nothing to add to the loss, for the wrapper adds the gradient at the
        float32 master. Otherwise it returns what ``regularizer(weight)`` returns.

    Raises:
        TypeError: ``regularizer`` cannot be called.
    """
    words.check_regularizer(regularizer)

    def register(weight: Variable) -> Array | None:
        if not words.has_master(str(weight.dtype)):
            return regularizer(weight)
        REGISTERED[weight] = regularizer
        return None

    return register


def get_scale(loss_scale: Any) -> float | AutomaticLossScaler | LossScale:
    """Return the number or object that ``loss_scale`` stands for.

    Raises:
        ValueError: another string or type, a number out of range.
    """
    if isinstance(loss_scale, str) and loss_scale == "dynamic":
        return DynamicLossScale()
    if isinstance(loss_scale, AutomaticLossScaler | DynamicLossScale | FixedLossScale):
        return loss_scale
    number = words.scale_number(loss_scale)
    if number is None:
        raise words.bad_loss_scale(loss_scale)
    return number


def make_master(variable: Variable) -> Variable:
    """Return the float32 master of a variable; it begins with the variable's value."""
    return Variable(words.master_name(variable.name), variable.value, np.float32)


def scale_in_dtype(gradient: Gradient, factor: np.float32) -> Gradient:
    """Return a gradient times a factor that was rounded to the gradient's dtype.

    So the gradients of a scaled loss come out of a model in float16, where a factor
    above 65504 is infinite.
    """
    if gradient is None:
        return None
    if isinstance(gradient, Rows):
        return gradient._replace(values=product(gradient.values, factor))
    return product(gradient, factor)


def product(values: Array, factor: np.float32) -> Array:
    """Return values times a factor that is rounded to their dtype first."""
    with np.errstate(all="ignore"):
        return np.asarray(values * values.dtype.type(factor))


def widen(gradient: Array | Rows) -> Array | Rows:
    """Return a gradient in float32."""
    if isinstance(gradient, Rows):
        return gradient._replace(values=gradient.values.astype(np.float32))
    return gradient.astype(np.float32)


def clipped(pairs: Pairs, clip_norm: float) -> tuple[Pairs, float]:
    """Scale gradients so that their global norm is at most ``clip_norm``."""
    gradients = [gradient for gradient, _ in pairs]
    present = [gradient for gradient in gradients if gradient is not None]
    norm = global_norm(present, np.dtype(np.float32))
    if norm > np.float32(clip_norm):
        with np.errstate(all="ignore"):
            gradients = scale_gradients(gradients, clip_factor(norm, clip_norm))
    variables = [variable for _, variable in pairs]
    return list(zip(gradients, variables, strict=True)), float(norm)
