"""``optimize_loss`` of OpenSeq2Seq for TensorFlow: a training step in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages import tf as tf_host
from lockstep.messages.nouns import TF
from lockstep.messages.step import arguments as checks
from lockstep.messages.step import optimize_loss as words
from lockstep.messages.step import refusals
from lockstep.messages.step.optimizer import DECAYING, arguments_for, instance
from lockstep.messages.step.reduction import Reduction
from lockstep.messages.step.summaries import check_summaries
from lockstep.messages.step.training_step import OWNER, DecayNow
from lockstep.tf.masters.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.tf.optimizers import (
    AdamOptimizer,
    AdamWOptimizer,
    FtrlOptimizer,
    RMSPropOptimizer,
)
from lockstep.tf.replicas import ReplicatedStep, copies_of, is_mirrored, name_of
from lockstep.tf.scaling.loss_scaler import AutomaticLossScaler
from lockstep.tf.shared.clipping import Processing
from lockstep.tf.shared.step import summaries as summary_records
from lockstep.tf.shared.step.arguments import Makers, Task, find_trained
from lockstep.tf.step.training_step import RATES, TrainingStep, make_slots
from lockstep.tf.wrapper import Optimizer, as_variable, base_of, builds_graph

__all__ = ["OPTIMIZER_CLS_NAMES", "optimize_loss"]

v1 = tf.compat.v1

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": AdamOptimizer,
    "Ftrl": FtrlOptimizer,
    "Momentum": v1.train.MomentumOptimizer,
    "RMSProp": RMSPropOptimizer,
    "SGD": v1.train.GradientDescentOptimizer,
    "AdamW": AdamWOptimizer,
}
"""The names that ``optimize_loss`` accepts, and their classes."""

SCOPE = "Loss_Optimization"
"""The scope of the original's variables, and so of their names in its checkpoints."""


@tf.autograph.experimental.do_not_convert
@documented
def optimize_loss(
    loss: tf.Tensor | Callable[..., tf.Tensor],
    optimizer: str | Callable[..., Optimizer] | Optimizer,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[tf.Tensor], Any],
    var_list: Iterable[Any] | None = None,
    dtype: Any = tf.float32,
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
) -> tf.Tensor | TrainingStep | ReplicatedStep:
    """Build the training step of a graph, or return an object that takes one.

    ...

    ``optimizer`` is a v1 optimizer or creates one. A graph counts the applied steps in
    its global step, and gets the summaries in its collection SUMMARIES. Otherwise the
    default writer of ``tf.summary`` gets them with each applied step.

    Args:
        loss: in a graph a 0-d tensor; in any mode a function that computes it, which
            gets the arguments of each call.
        var_list: the variables to train. None: those of ``model``; in a graph its
            trainable variables.
        on_horovod: average over the ranks, if there are any; see ``reduce_gradients``.
        skip_update_ph: whether to accumulate only: a bool or a 0-d tensor, such as a
            placeholder, or a function that is called at each step. None: each
            ``iter_size``-th call updates.
        model: an object whose ``trainable_variables`` are trained if ``var_list`` is
            None. Without that attribute it has no effect, as in OpenSeq2Seq.
        reduction: computes the average; None: the replicas of ``tf.distribute``.

    Returns:
        In a graph the loss before the update, evaluated after it. Its attribute
        ``training_step`` is the step; operations of the collection UPDATE_OPS run
        before it. Otherwise the step: see
        :class:`~lockstep.tf.step.training_step.TrainingStep`; for variables of a
        strategy with several replicas
        :class:`~lockstep.tf.step.replicas.ReplicatedStep`.

    Raises:
        ...
        RuntimeError: in eager mode, if ``loss`` is no function.

    Example:
        >>> weight = tf.Variable([3.0, 4.0])
        >>> step = optimize_loss(
        ...     lambda: tf.reduce_sum(tf.square(weight)) / 2,
        ...     "Momentum",
        ...     {"momentum": 0.5},
        ...     lambda global_step: 0.5,
        ...     var_list=[weight],
        ...     clip_gradients=2.5,
        ... )
        >>> float(step()), weight.numpy().tolist()
        (12.5, [2.25, 3.0])
        >>> int(step.global_step), step.pipeline
        (1, ('norm', 'clip', 'update'))
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
        process=processing(strict),
    )
    in_graph = builds_graph()
    if not callable(loss) and not in_graph:
        raise refusals.LOSS_NOT_CALLABLE.error(got=type(loss).__name__)
    variables = trained(var_list, model, in_graph)
    if not settings.quirks.arguments_unchecked:
        checks.check_once(variables, name_of)
    copies = copies_of(variables, on_horovod)
    if in_graph:
        return build(TrainingStep(task, variables))
    # In the scope of a strategy with one replica all state is mirrored like them.
    are_ranks = is_mirrored(variables) and not tf.distribute.has_strategy()
    steps = [TrainingStep(task, c) for c in (copies if are_ranks else [variables])]
    for step in steps:
        assemble(step)
    return replicated(steps) if are_ranks else steps[0]


def processing(strict: bool) -> type[Processing]:
    """Return the class that clips gradients and scales them by LARC."""
    if strict:
        from lockstep.tf import strict as originals

        return originals.Processing
    return Processing


def replicated(steps: list[TrainingStep]) -> ReplicatedStep:
    """Return the step of several replicas; create all slots now."""
    for step in steps:
        step.is_replica = True
        make_slots(step.optimizer, step.trained)
    return ReplicatedStep(steps)


def build(step: TrainingStep) -> tf.Tensor:
    """Build a step into the graph, and the operations of its summaries."""
    step._rate = step.next_rate()
    with v1.variable_scope(SCOPE):
        loss = step.task.loss
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            loss = loss() if callable(loss) else loss
            if isinstance(loss, tuple):
                raise tf_host.TUPLE_IN_GRAPH.error(function=OWNER)
            loss = tf.identity(loss)
        assemble(step)
        done = step.build(loss)
    summary_records.add_to_graph(step.record)
    done.training_step = step
    return done


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


def trained(var_list: Any, model: Any, in_graph: bool) -> list[tf.Variable]:
    """Return the variables to train."""
    default = v1.trainable_variables() if in_graph else ()
    return find_trained(var_list, model, default, tf.Variable, as_variable)


def make_optimizer(step: TrainingStep) -> Optimizer:
    """Create the optimizer from its name or class; by default accept an instance."""
    optimizer, params = step.task.optimizer, step.task.optimizer_params
    quirks = step.settings.quirks
    in_graph = builds_graph()
    arguments = arguments_for(optimizer, params, quirks.arguments_unchecked, "tf")
    if isinstance(optimizer, Optimizer):
        if quirks.optimize_loss_instance or arguments:
            raise instance(optimizer, arguments)
        return with_free_rate(optimizer)
    if optimizer == DECAYING:
        step.weight_decay = arguments["weight_decay"]
        decay = step.decay() if in_graph else step.decay
        arguments["weight_decay"] = decay
        if quirks.optimize_loss_dict:
            params["weight_decay"] = decay if in_graph else DecayNow(decay)
    rate = step._rate if in_graph else float(step.next_rate())
    makers = Makers(OPTIMIZER_CLS_NAMES, Optimizer, TF)
    base = makers.make(optimizer, rate, arguments, step.settings.strict)
    return base if in_graph else with_free_rate(base)


def with_free_rate(optimizer: Optimizer) -> Optimizer:
    """Return an optimizer whose rate each step can set; raise for another one."""
    if not any(name in vars(base_of(optimizer)) for name in RATES):
        raise tf_host.FIXED_RATE.error(
            owner=OWNER, got=type(base_of(optimizer)).__name__
        )
    return optimizer
