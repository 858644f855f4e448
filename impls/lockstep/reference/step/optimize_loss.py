"""``optimize_loss`` over NumPy variables: one object for the whole training step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lockstep.docstrings import documented
from lockstep.interface import Gradient
from lockstep.messages.nouns import REFERENCE
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import optimize_loss as words
from lockstep.messages.step import refusals
from lockstep.messages.step.optimizer import (
    DECAYING,
    arguments_for,
    check_maker,
    instance,
    rate_argument,
)
from lockstep.messages.step.reduction import Reduction
from lockstep.messages.step.summaries import check_summaries
from lockstep.messages.step.training_step import OWNER, DecayNow
from lockstep.reference.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.reference.optimizers.classes import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    Optimizer,
    RMSPropOptimizer,
)
from lockstep.reference.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.reference.step.training_step import TrainingStep
from lockstep.reference.tensors.variable import Variable

__all__ = ["OPTIMIZER_CLS_NAMES", "optimize_loss"]

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}
"""Name of an optimizer for ``optimize_loss`` -> its class."""


@documented
def optimize_loss(
    loss: Callable[..., Iterable[Gradient]],
    optimizer: str | Callable[..., Optimizer] | Optimizer,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[Any], Any],
    var_list: Iterable[Variable] | None = None,
    dtype: Any = np.float32,
    clip_gradients: float | None = None,
    summaries: Sequence[str] | None = None,
    larc_params: Mapping[str, Any] | None = None,
    loss_scaling: Any = 1.0,
    loss_scaling_params: Mapping[str, Any] | None = None,
    on_horovod: bool = False,
    iter_size: int = 1,
    skip_update_ph: Any = None,
    model: Any = None,
    *,
    reduction: Reduction | None = None,
    strict: bool = False,
) -> TrainingStep:
    """Return an object that takes one step of training each time it is called.

    ...

    The summaries of a step go to its ``recorder``.

    Args:
        loss: a function that returns the gradients, one for each variable.
        var_list: the variables to train.
        skip_update_ph: whether to accumulate without an update: a bool, or a function
            that is called in each step. None: each ``iter_size``-th call updates.
        model: as in OpenSeq2Seq; without effect.
        reduction: averages over the ranks; None means a single rank.
    """
    settings = words.Settings(
        dtype=dtype,
        clip_gradients=clip_gradients,
        larc_params=larc_params,
        loss_scaling=loss_scaling,
        loss_scaling_params=loss_scaling_params,
        on_horovod=on_horovod,
        iter_size=iter_size,
        has_flag=skip_update_ph is not None,
        strict=strict,
    )
    quirks = settings.quirks
    checks.check_given(
        quirks.arguments_unchecked,
        learning_rate_decay_fn=learning_rate_decay_fn,
        optimizer_params=optimizer_params,
        loss_scaling_params=loss_scaling_params,
        skip_update_ph=skip_update_ph,
        model=None if var_list is None else model,
        reduction=reduction,
    )
    names = check_summaries(summaries, OWNER)
    if not callable(loss):
        raise refusals.LOSS_NOT_CALLABLE.error(got=type(loss).__name__)
    rate = checks.rate_function(learning_rate_decay_fn, quirks.arguments_unchecked)
    step = TrainingStep(settings, loss, trained(var_list), rate)
    step.summaries, step.skip_update_ph = names, skip_update_ph
    step.model, step.reduction = model, reduction
    if settings.makes_scaler:
        step.scaler = AutomaticLossScaler(loss_scaling, loss_scaling_params, strict)
    base = make_optimizer(step, optimizer, optimizer_params)
    step.optimizer = with_masters(step, base, loss_scaling)
    return step


def trained(var_list: Any) -> list[Variable]:
    """Return the variables to train."""
    expected = "variables, since NumPy cannot find them"
    if var_list is None:
        raise refusals.NO_VARIABLES.error(expected=expected, got="None")
    variables = checks.listed(var_list, Variable)
    for variable in variables:
        if not isinstance(variable, Variable):
            raise checks.not_a_variable("lockstep.reference.Variable", variable)
    checks.check_once(variables, lambda variable: variable.name)
    if not variables:
        raise refusals.NO_VARIABLES.error(expected=expected, got="an empty list")
    return variables


def make_optimizer(
    step: TrainingStep, optimizer: Any, optimizer_params: Mapping[str, Any] | None
) -> Optimizer:
    """Return the optimizer for a name, a class or function, or an instance.

    Strict: an instance is refused.
    """
    quirks = step.settings.quirks
    arguments = arguments_for(
        optimizer, optimizer_params, quirks.arguments_unchecked, "reference"
    )
    if isinstance(optimizer, Optimizer):
        if quirks.optimize_loss_instance or arguments:
            raise instance(optimizer, arguments)
        return optimizer
    if optimizer == DECAYING:
        step.weight_decay = arguments["weight_decay"]
        arguments["weight_decay"] = float(step.decay())
        if quirks.optimize_loss_dict:
            optimizer_params["weight_decay"] = DecayNow(  # type: ignore[index]
                step.decay
            )
    make = make_of(optimizer, step.settings.strict)
    if not callable(make):
        raise refusals.NOT_AN_OPTIMIZER.error(
            nouns=REFERENCE, got=type(optimizer).__name__
        )
    check_maker(make)
    arguments.pop("use_locking", None)
    rate = {rate_argument(make): float(step.learning_rate)}
    result = make(**rate, **arguments)
    if not isinstance(result, Optimizer):
        raise refusals.NOT_AN_OPTIMIZER.error(
            nouns=REFERENCE, got=type(result).__name__
        )
    return result


def make_of(optimizer: Any, strict: bool) -> Callable[..., Optimizer]:
    """Return the class for a name; a class or function is returned as it is."""
    if not isinstance(optimizer, str):
        return optimizer  # type: ignore[no-any-return]
    make = OPTIMIZER_CLS_NAMES[optimizer]
    return partial(make, strict=True) if strict else make


def with_masters(step: TrainingStep, base: Optimizer, loss_scaling: Any) -> Optimizer:
    """Wrap the optimizer with float32 masters if the dtype is "mixed"."""
    settings = step.settings
    words.check_stack(settings, base)
    if not settings.mixed:
        return base
    scale = loss_scaling if step.scaler is None else step.scaler
    return MixedPrecisionOptimizerWrapper(base, scale, strict=settings.strict)
