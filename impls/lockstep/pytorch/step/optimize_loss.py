"""``optimize_loss`` of OpenSeq2Seq for PyTorch: the whole step in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.docstrings import documented
from lockstep.messages import pytorch as torch_host
from lockstep.messages.nouns import PYTORCH
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
from lockstep.pytorch.base.gradients import named_parameters
from lockstep.pytorch.base.wrapper import OptimizerWrapper, needs_closure
from lockstep.pytorch.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.pytorch.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
)
from lockstep.pytorch.scaling.automatic_scaler import AutomaticLossScaler
from lockstep.pytorch.step.trained_parameters import (
    Named,
    require_known,
    require_same,
    trained,
    weights_of,
)
from lockstep.pytorch.step.training_step import TrainingStep

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
"""The names that ``optimize_loss`` takes, and their classes: the rules of TF1."""


@documented
def optimize_loss(
    loss: Callable[..., Tensor | tuple[Any, ...]],
    optimizer: str | Callable[..., Optimizer] | Optimizer,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[Tensor], Any] | float,
    var_list: Iterable[Tensor | tuple[str, Tensor]] | None = None,
    dtype: Any = torch.float32,
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
    """...

    Each step sets ``lr`` in the optimizer's groups. ``learning_rate_decay_fn`` may be a
    number, the rate of every step. Summaries are computed once ``summaries_to`` has
    named a writer.

    Args:
        loss: a function that returns the loss, a 0-d tensor. Each call of the step
            passes its arguments on to it. If it returns a tuple whose first entry is
            the loss, the step returns such a tuple too, with all tensors detached.
            Calls of ``torch.utils.checkpoint`` in it need ``use_reentrant=False``.
        optimizer: a name of ``OPTIMIZER_CLS_NAMES``, a class or function that makes an
            optimizer, or an optimizer. A class or function is called with a list of
            the parameters, ``learning_rate=`` (or ``lr=``, if it takes that) and
            ``optimizer_params``. An optimizer needs one rate in all its groups and no
            ``optimizer_params``. If ``model`` is passed without ``var_list``, its
            groups must contain the trainable parameters of ``model``.
        var_list: the parameters to train, with or without their names. None takes the
            parameters of ``model`` that require a gradient now, or those of the given
            optimizer. List a parameter that is frozen now but trained later.
        on_horovod: average over the ranks of ``torch.distributed``, if there are any.
        model: a module whose parameters are trained if ``var_list`` is None. It must
            not be wrapped in ``DistributedDataParallel``.
        reduction: the object that averages gradients. None uses ``torch.distributed``.

    State: ``state_dict`` of the step contains the optimizer's state, the counters and
    the accumulated gradients.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
        >>> loss = lambda: weight.square().sum() / 2
        >>> step = optimize_loss(loss, "SGD", {}, 0.5, [weight], clip_gradients=2.5)
        >>> step().item()
        12.5
        >>> weight.tolist(), step.pipeline
        ([2.25, 3.0], ('norm', 'clip', 'update'))
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
    step = TrainingStep(settings, loss, rate)
    step.summaries, step.skip_update_ph = names, skip_update_ph
    step.model, step.reduction = model, reduction
    if settings.makes_scaler:
        step.scaler = AutomaticLossScaler(loss_scaling, loss_scaling_params, strict)
    named = trained(var_list, model, optimizer)
    base = make_optimizer(step, named, optimizer, optimizer_params)
    parameters = weights_of(base, [parameter for _, parameter in named])
    named = [(name, p) for (name, _), p in zip(named, parameters, strict=True)]
    names_of = named_parameters(base)
    known = dict(zip(weights_of(base, names_of), names_of.values(), strict=True))
    if var_list is None:
        require_same(model, known)
    require_known(named, known)
    step.parameters = parameters
    step.names = [name or known[parameter] for name, parameter in named]
    step.optimizer = wrapped(step, base, loss_scaling)
    step.clear()
    return step


def make_optimizer(
    step: TrainingStep,
    named: Named,
    optimizer: Any,
    optimizer_params: Mapping[str, Any] | None,
) -> Optimizer:
    """Return the optimizer, or make one from its name or class."""
    quirks = step.settings.quirks
    arguments = arguments_for(
        optimizer, optimizer_params, quirks.arguments_unchecked, "pytorch"
    )
    if isinstance(optimizer, Optimizer):
        return given_instance(optimizer, arguments, quirks.optimize_loss_instance)
    if optimizer == DECAYING:
        step.weight_decay = arguments["weight_decay"]
        arguments["weight_decay"] = float(step.decay())
        if quirks.optimize_loss_dict:
            optimizer_params["weight_decay"] = DecayNow(step.decay)
    make = make_of(optimizer, step.settings.strict)
    if not callable(make):
        raise refusals.NOT_AN_OPTIMIZER.error(
            nouns=PYTORCH, got=type(optimizer).__name__
        )
    check_maker(make)
    rate = {rate_argument(make): float(step.learning_rate)}
    result = make([parameter for _, parameter in named], **rate, **arguments)
    if not isinstance(result, Optimizer):
        raise refusals.NOT_AN_OPTIMIZER.error(nouns=PYTORCH, got=type(result).__name__)
    write_names(result, {p: name for name, p in named if name is not None})
    return result


def write_names(made: Optimizer, names: Mapping[Tensor, str]) -> None:
    """Store the names of parameters in the optimizer's groups, if all have a name.

    The optimizer was constructed from unnamed tensors, because a function that makes
    one may sort them into groups.
    """
    groups = made.param_groups
    listed = [weights_of(made, group["params"]) for group in groups]
    if all(parameter in names for parameters in listed for parameter in parameters):
        for group, parameters in zip(groups, listed, strict=True):
            group["param_names"] = [names[parameter] for parameter in parameters]


def make_of(optimizer: Any, strict: bool) -> Any:
    """Return the class with this name, or ``optimizer`` itself if it is no name."""
    if not isinstance(optimizer, str):
        return optimizer
    make = OPTIMIZER_CLS_NAMES[optimizer]
    return partial(make, strict=True) if strict else make


def given_instance(
    optimizer: Optimizer, arguments: Mapping[str, Any], refused: bool
) -> Optimizer:
    """Return the given optimizer, or raise if it cannot be used as it is."""
    if refused or arguments:
        raise instance(optimizer, arguments)
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if len(rates) > 1:
        raise refusals.SEVERAL_RATES.error(
            got=", ".join(f"{r:g}" for r in sorted(rates))
        )
    return optimizer


def wrapped(step: TrainingStep, base: Optimizer, loss_scaling: Any) -> Optimizer:
    """Return an optimizer that has our methods: with "mixed" one that has masters."""
    settings = step.settings
    words.check_stack(settings, base)
    if not hasattr(type(base), "took_step") and needs_closure(base):
        raise torch_host.NEEDS_CLOSURE.error(owner=OWNER, opt=type(base).__name__)
    if not settings.mixed:
        return base if hasattr(type(base), "took_step") else OptimizerWrapper(base)
    scale = loss_scaling if step.scaler is None else step.scaler
    return MixedPrecisionOptimizerWrapper(base, scale, strict=settings.strict)
