"""Float32 master weights over NumPy variables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from lockstep import errors
from lockstep.checks import CHOOSE, HELD, is_scale, number_of, require
from lockstep.interface import Array, Gradient
from lockstep.pipeline import has_layer
from lockstep.reference import arrays
from lockstep.reference.arrays import LARGEST, SINGLE, Pairs, Variable, cast, times
from lockstep.reference.loss_scaling import (
    AutomaticLossScaler,
    DynamicLossScale,
    FixedLossScale,
    ScalingWrapper,
)
from lockstep.reference.optimizers import Optimizer
from lockstep.reference.variable_clipping import share_row_axes

OWNER = "MixedPrecisionOptimizerWrapper"
Regularizer = Callable[..., Array]

REGISTERED: WeakKeyDictionary[Variable, Regularizer] = WeakKeyDictionary()
"""Half-precision weight -> its regularizer; the weights are held weakly."""


class MixedPrecisionOptimizerWrapper(ScalingWrapper):
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
        loss_scale: a number > 0, None for 1, ``dynamic``, an ``AutomaticLossScaler`` or
            a loss scale.
        clip_norm: as in
            :class:`~lockstep.reference.MixedPrecisionLossScaleOptimizer`.
        strict: as in OpenSeq2Seq: only floats and automatic scalers can be used, absent
            float16 gradients are refused, a static scale applies gradients that are not
            finite.

    Raises:
        ValueError: ``optimizer`` is no optimizer, an argument out of range.

    Origin: OpenSeq2Seq, ``MixedPrecisionOptimizerWrapper``; P. Micikevicius et al.,
    "Mixed Precision Training". By default we differ in what ``strict`` lists.

    Example:
        >>> w = Variable("w", [1.0], np.float16)
        >>> sgd = GradientDescentOptimizer(2.0**-12)
        >>> optimizer = MixedPrecisionOptimizerWrapper(sgd)
        >>> optimizer.minimize(lambda: [np.float16([1])], var_list=[w])
        >>> w.value.item(), optimizer.master(w).value.item() == 1 - 2**-12
        (1.0, True)
    """

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: Any = None,
        *,
        clip_norm: float | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(optimizer, clip_norm, strict)
        if not strict and has_layer(optimizer, "AGNOptimizer"):  # arguments-checked
            raise errors.UnsupportedError(
                f"{OWNER}: expected an optimizer that can be given masters, got "
                "AGNOptimizer, which shares what it trains; let that be float32, with "
                "MixedPrecisionLossScaleOptimizer around it to scale the loss."
            )
        # masters-scale-type
        known = AutomaticLossScaler | FixedLossScale | DynamicLossScale
        if not strict and isinstance(loss_scale, str):
            if loss_scale != "dynamic":
                raise errors.UnknownNameError(
                    f"{OWNER}: loss_scale: expected a number, None, 'dynamic' or a "
                    f"loss scale, got {loss_scale!r}; pass "
                    "AutomaticLossScaler('Backoff'), for example."
                )
            loss_scale = DynamicLossScale()
        if not strict and loss_scale is not None and not isinstance(loss_scale, known):
            number = number_of(loss_scale)
            require(OWNER, "loss_scale", loss_scale, is_scale(number), HELD, CHOOSE)
            loss_scale = number
        self.scale_object = loss_scale
        # masters-static-scale
        self.skips = not strict or isinstance(loss_scale, AutomaticLossScaler)
        self.masters: dict[Variable, Variable] = {}

    @property
    def loss_scale(self) -> np.float32:
        """The current loss scale, float32."""
        scale = self.scale_object
        is_usable = scale is None or isinstance(scale, float | AutomaticLossScaler)
        if self.strict and not is_usable:  # masters-scale-type
            raise errors.UnusableScaleError(
                f"{OWNER}: loss_scale: expected a float or an AutomaticLossScaler, got "
                f"{scale!r}; the original fails at the first use; leave strict off."
            )
        return super().loss_scale

    def master(self, variable: Variable) -> Variable:
        """Return the master of a variable, or the variable itself if it has none."""
        return self.masters.get(variable, variable)

    def compute_gradients(self, loss: Any, var_list: Iterable[Variable]) -> Pairs:
        """Return the unscaled float32 gradients with the masters."""
        scale = self.loss_scale
        self.adopt_changes()

        def scaled(gradient: Gradient) -> Gradient:
            # As in a float16 model, where a scale above 65504 is infinite.
            return arrays.map_values(lambda v: v * v.dtype.type(scale), gradient)

        of_masters: Pairs = []
        for gradient, variable in self.scaled_pairs(loss, var_list, scaled):
            has_master = self.trains_master(variable)
            if gradient is None and has_master and self.strict:  # masters-absent
                raise errors.UnsupportedError(
                    f"{OWNER}: expected a gradient for the float16 variable "
                    f"{variable.name!r}, got None; the original cannot leave it out; "
                    "leave strict off."
                )
            wide, master = self.for_master(gradient, variable)
            regularizer = REGISTERED.get(variable)
            if regularizer is not None and has_master:
                wide = add_penalty(wide, regularizer(master) * scale)
            of_masters.append((times(wide, self.reciprocal()), master))
        return of_masters

    def for_master(
        self, gradient: Gradient, variable: Variable
    ) -> tuple[Gradient, Variable]:
        """Return a gradient in its master's dtype, and the master, made if missing."""
        if not self.trains_master(variable):
            return gradient, variable
        if variable not in self.masters:
            name = f"FP32-master-copy/{variable.name}"
            master = Variable(name, variable.value, np.float32)
            self.masters[variable], self.models[master] = master, variable
            if not self.strict:  # masters-row-clipping
                share_row_axes(variable, master, self.inner_optimizer)
        return cast(gradient, SINGLE), self.masters[variable]

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Update the masters if all gradients are finite, then copy them back."""
        self.adopt_changes()
        if not self.strict:  # masters-slots: a variable stands for its master.
            pairs = [self.for_master(gradient, v) for gradient, v in pairs]

        def update(pairs: Pairs) -> None:
            self.inner_optimizer.apply_gradients(pairs, global_step)
            for variable, master in self.masters.items():
                dtype = variable.dtype
                variable.value = arrays.saturating_cast(master.value, dtype)

        self.apply_or_skip(pairs, update)

    def trains_master(self, variable: Variable) -> bool:
        """Return whether a variable is trained through a master."""
        dtype = str(variable.dtype)
        # half-precision-scalars: the original does not know bfloat16.
        return dtype == "float16" if self.strict else dtype in LARGEST

    def adopt_changes(self) -> None:
        """Copy values that were written into variables from outside into the masters.

        Where a master rounds to its variable it is kept, because it is more precise.
        """
        if self.strict:  # masters-slots: the next step overwrites what was written.
            return
        for variable, master in self.masters.items():
            model = variable.value
            rounded = arrays.saturating_cast(master.value, variable.dtype)
            same = (rounded == model) | (np.isnan(rounded) & np.isnan(model))
            master.value = np.where(same, master.value, model.astype(np.float32))

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the variable's master."""
        return super().get_slot(self.master(var), name)


def mp_regularizer_wrapper(regularizer: Regularizer) -> Callable[[Variable], Any]:
    """Leave the regularization of half-precision weights to the optimizer.

    A loss here is its gradients, so ``regularizer(weight)`` returns the gradient of the
    penalty at ``weight``.

    Args:
        regularizer: weight -> gradient of the penalty, of the weight's shape.

    Returns:
        A function of a weight. In half precision it registers the weight and returns
        None, because the wrapper adds the gradient at the float32 master. Otherwise it
        returns ``regularizer(weight)``; more arguments, such as d loss, are passed on.

    Origin: OpenSeq2Seq, ``mp_regularizer_wrapper``.
    """

    def register(weight: Variable, *upstream: Any) -> Array | None:
        if str(weight.dtype) not in LARGEST:
            return regularizer(weight, *upstream)
        REGISTERED[weight] = regularizer
        return None

    return register


def add_penalty(gradient: Gradient, penalty: Array) -> Array:
    """Add the gradient of a penalty [d0, ...]; rows become dense, None counts as 0."""
    if gradient is None:
        return penalty
    with np.errstate(all="ignore"):
        return np.asarray(arrays.densify(gradient, penalty.shape) + penalty)
