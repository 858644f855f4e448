"""``optimize_loss`` of OpenSeq2Seq for Keras: a training step in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import Gradient, as_variable, name_of
from lockstep.keras3.base.replicas import scope_of, strategy_of
from lockstep.keras3.base.slots import base_of, refuse_several
from lockstep.keras3.base.train_v1 import TrainV1
from lockstep.keras3.base.wrapper import Wrapper, refuse_factor, refuse_scale
from lockstep.keras3.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.keras3.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    RMSPropOptimizer,
)
from lockstep.keras3.scaling.loss_scaler import AutomaticLossScaler
from lockstep.keras3.step.training_step import TrainingStep
from lockstep.messages import keras3 as keras_host
from lockstep.messages.nouns import KERAS3
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import optimize_loss as words
from lockstep.messages.step import refusals
from lockstep.messages.step.optimizer import DECAYING, arguments_for, instance
from lockstep.messages.step.reduction import Reduction
from lockstep.messages.step.summaries import check_summaries
from lockstep.messages.step.training_step import (
    OWNER,
    report_applied,
)
from lockstep.tf.shared.step.arguments import Makers, Task, find_trained

__all__ = ["OPTIMIZER_CLS_NAMES", "optimize_loss"]

Optimizer = keras.optimizers.Optimizer

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}
"""The names that ``optimize_loss`` accepts, and their classes: with Keras' rules."""
MAKERS = Makers(OPTIMIZER_CLS_NAMES, Optimizer, KERAS3)


@documented
def optimize_loss(
    loss: Callable[..., Any],
    optimizer: str | Callable[..., Optimizer] | Optimizer,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[tf.Tensor], Any] | float,
    var_list: Iterable[Any] | None = None,
    dtype: Any = "float32",
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

    ``optimizer`` is a Keras optimizer or creates one. Its rate must not be a schedule,
    because each step sets the optimizer's ``learning_rate``. ``learning_rate_decay_fn``
    may be a float, the rate of every step. The default writer of ``tf.summary`` gets
    the summaries with each applied step.

    Args:
        loss: a function that computes the loss, a 0-d tensor, or a tuple that begins
            with it; it gets the arguments of each call.
        optimizer_params: the optimizer's arguments by name. "AdamW" decays by
            rate x ``weight_decay``, which is Keras' rule.
        var_list: the variables to train. None: those of ``model``.
        dtype: float32, float16, or "mixed" for half-precision variables with float32
            masters and a scaled loss. With the policy ``mixed_float16`` variables are
            float32, and "mixed" scales the loss.
        model: a model; its trainable variables are trained if ``var_list`` is None.
        reduction: computes the average; None: this process is the only rank. The
            replicas of one ``tf.distribute`` strategy, in whose ``run`` the step is
            called, are always averaged, and need ``on_horovod``.

    Example:
        >>> weight = keras.Variable([3.0, 4.0])
        >>> loss = lambda: keras.ops.sum(keras.ops.square(weight)) / 2
        >>> sgd = keras.optimizers.SGD()
        >>> step = optimize_loss(loss, sgd, None, 0.5, [weight], clip_gradients=2.5)
        >>> float(step())
        12.5
        >>> weight.numpy().tolist()
        [2.25, 3.0]
        >>> step.pipeline
        ('norm', 'clip', 'update')
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
    task = Task(
        settings=settings,
        loss=loss,
        optimizer=optimizer,
        optimizer_params=optimizer_params,
        learning_rate_decay_fn=learning_rate_decay_fn,
        summaries=check_summaries(summaries, OWNER),
        skip_update_ph=skip_update_ph,
        model=model,
        reduction=reduction,
    )
    if not callable(loss):
        raise refusals.LOSS_NOT_CALLABLE.error(got=type(loss).__name__)
    step = TrainingStep(task, trained(var_list, model))
    with scope_of(strategy_of(step.trained)):
        assemble(step)
        step.optimizer.ensure_built(step.trained)
    return step


def assemble(step: TrainingStep) -> None:
    """Create the optimizer of a step, and its loss scaler."""
    settings = step.settings
    base = make_optimizer(step)
    words.check_stack(settings, base)
    scale, strict = settings.loss_scaling, settings.strict
    if settings.makes_scaler:
        params = settings.loss_scaling_params
        scale = step.scaler = AutomaticLossScaler(scale, params, strict)
    step.optimizer = base
    if settings.mixed:
        step.optimizer = MixedPrecisionOptimizerWrapper(base, scale, strict=strict)


def trained(var_list: Any, model: Any) -> list[Any]:
    """Return the variables to train."""
    kind = keras.Variable | tf.Variable
    trained = find_trained(var_list, model, (), kind, as_variable)
    checks.check_once(trained, name_of)
    return trained


def make_optimizer(step: TrainingStep) -> Optimizer:
    """Create the optimizer from its name or class; by default accept an instance."""
    optimizer, params = step.task.optimizer, step.task.optimizer_params
    quirks = step.settings.quirks
    unchecked = quirks.arguments_unchecked
    arguments = arguments_for(optimizer, params, unchecked, "keras3")
    rate = float(step.next_rate())
    if isinstance(optimizer, Optimizer):
        if quirks.optimize_loss_instance or arguments:
            raise instance(optimizer, arguments)
        return with_free_rate(optimizer)
    if optimizer == DECAYING and quirks.optimize_loss_dict:
        # Keras' rule itself multiplies the decay by the rate, so this only affects
        # code that uses the dict again.
        params["weight_decay"] = rate * arguments["weight_decay"]
    base = MAKERS.make(optimizer, rate, arguments, step.settings.strict)
    return with_free_rate(base)


def with_free_rate(optimizer: Optimizer) -> Optimizer:
    """Return an optimizer with TensorFlow 1's interface and a rate that can be set."""
    remedy = 'pass the one inside, and dtype="mixed", which scales the loss'
    refuse_scale(optimizer, f"{OWNER}: optimizer", remedy)
    refuse_factor(optimizer, f"{OWNER}: optimizer")
    refuse_several(optimizer, f"{OWNER}: optimizer", "pass a single optimizer")
    base = base_of(optimizer)
    if not isinstance(base._learning_rate, keras.Variable):
        raise keras_host.FIXED_RATE.error(owner=OWNER, got=type(base).__name__)
    return optimizer if isinstance(optimizer, TrainV1) else Adapted(optimizer)


class Adapted(Wrapper):
    """A Keras optimizer with TensorFlow 1's interface, and reports."""

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the optimizer's step; report which variables had a gradient."""
        super().update(gradients, variables)
        if tf.executing_eagerly():
            pairs = zip(gradients, variables, strict=True)
            absent = [name_of(v) for g, v in pairs if g is None]
            names = [name_of(v) for v in variables]
            self.last_step = report_applied(None, names, absent)
