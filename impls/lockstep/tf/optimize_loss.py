"""``optimize_loss`` of OpenSeq2Seq for TensorFlow: a training step in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from lockstep import errors
from lockstep.tf import optimizers as rules
from lockstep.tf.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.tf.shared import optimize_loss as shared
from lockstep.tf.shared.loss_scales import AutomaticLossScaler, state_variable
from lockstep.tf.shared.post_process import sum_losses
from lockstep.tf.wrapper import (
    Optimizer,
    Pairs,
    apply_with,
    as_train_op,
    awaits_sums,
    base_of,
    builds_graph,
    check_pairs,
    listed,
    make_together,
    replica_count,
    require_mirrored,
    require_optimizer,
    require_resources,
    summed_gradients,
    sums_over_replicas,
    with_strict,
)

v1 = tf.compat.v1

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": rules.AdamOptimizer,
    "Ftrl": rules.FtrlOptimizer,
    "Momentum": v1.train.MomentumOptimizer,
    "RMSProp": rules.RMSPropOptimizer,
    "SGD": v1.train.GradientDescentOptimizer,
    "AdamW": rules.AdamWOptimizer,
}
"""The names that ``optimize_loss`` accepts, and their classes."""

OWNER = shared.OWNER
SCOPE = "Loss_Optimization"
"""The scope of the original's variables, and so of their names in its checkpoints."""
RATES = ("_lr", "_learning_rate")
"""The names of v1 optimizers' attributes for the rate."""


@with_strict
def optimize_loss(
    loss: tf.Tensor | Callable[..., tf.Tensor],
    optimizer: str | Callable[..., Optimizer] | Optimizer,
    optimizer_params: Mapping[str, Any] | None,
    learning_rate_decay_fn: Callable[[tf.Tensor], Any] | float,
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
    reduction: Any = None,
) -> tf.Tensor | TrainingStep:
    """Build the training step of a graph, or return an object that takes one.

    rate = learning_rate_decay_fn(steps applied so far); g = gradients of the loss,
    times 1 / scale; with ``iter_size`` > 1, g = sum of g / iter_size over the
    micro-batches. g is averaged over the ranks. With "mixed", the step is skipped if g
    is not finite. g is clipped or scaled by LARC. Then the optimizer updates the
    variables, and the step is counted.

    A graph counts the applied steps in its global step, and gets the summaries in its
    collection SUMMARIES. Otherwise the default writer of ``tf.summary`` gets them with
    each applied step.

    Args:
        loss: in a graph a 0-d tensor; in any mode a function that computes it, which
            gets the arguments of each call.
        optimizer: a name of ``OPTIMIZER_CLS_NAMES``; or a class or a function that
            returns a v1 optimizer, called with ``learning_rate=`` and
            ``optimizer_params``; or a v1 optimizer, without ``optimizer_params``.
        optimizer_params: the optimizer's arguments by name. "AdamW" by name decays by
            rate x ``weight_decay``.
        learning_rate_decay_fn: a function that returns the rate, or a number, the rate
            of every step. Each step calls it with the number of steps applied so far,
            int64 and 0-d; see ``lr_policies``.
        var_list: the variables to train. None: those of ``model``; in a graph its
            trainable variables.
        dtype: float32, float16 or "mixed": half-precision variables with float32
            masters, and the loss scaled.
        clip_gradients: the largest global norm, > 0. Not together with LARC.
        summaries: names of ``OPTIMIZER_SUMMARIES``. None stands for ``learning_rate``,
            ``global_gradient_norm`` and ``loss_scale``.
        larc_params: ``larc_eta``, ``larc_mode``, ``min_update``, ``epsilon``.
        loss_scaling: with "mixed": a number, "Backoff" or "LogMax", or a scale object.
        loss_scaling_params: parameters of the named scaler; refused without one.
        on_horovod: average over the ranks, if there are any; see ``reduce_gradients``.
        iter_size: micro-batches in a step. A gradient is present in all of them or in
            none, and either sparse or dense.
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
        :class:`~lockstep.tf.optimize_loss.TrainingStep`.

    Raises:
        ValueError: an unknown name (the nearest is given), a value out of its range,
            nothing to train.
        TypeError: an argument that the optimizer needs or does not have; a
            ``learning_rate_decay_fn`` that cannot be called with the steps.
        KeyError: "AdamW" without ``weight_decay``.
        RuntimeError: in eager mode, if ``loss`` is no function.
        AttributeError and ValueError in one: clipping and LARC together.

    Origin: OpenSeq2Seq (8681d381ed40), ``optimizers/optimizers.py``.

    Example:
        >>> weight = tf.Variable([3.0, 4.0])
        >>> loss = lambda: tf.reduce_sum(tf.square(weight)) / 2
        >>> momentum = "Momentum", {"momentum": 0.5}
        >>> step = optimize_loss(loss, *momentum, 0.5, [weight], clip_gradients=2.5)
        >>> float(step()), weight.numpy().tolist()
        (12.5, [2.25, 3.0])
        >>> int(step.global_step), step.pipeline
        (1, ('norm', 'clip', 'update'))
    """
    return start(dict(locals()), TrainingStep)


def start(
    arguments: Mapping[str, Any], step_class: type[TrainingStep]
) -> tf.Tensor | TrainingStep:
    """Build the step of a graph, or return the step with these arguments."""
    in_graph = builds_graph()
    if in_graph and (replica_count() > 1 or tf.distribute.in_cross_replica_context()):
        raise errors.UnsupportedError(
            f"{OWNER}: expected no strategy in a graph, or strategy.run of a single "
            "replica, got another; train several replicas eagerly or in a tf.function."
        )
    default = v1.trainable_variables() if in_graph else ()
    chosen = shared.to_train(arguments["var_list"], arguments["model"], default)
    step = step_class(arguments, listed(chosen, OWNER))
    if in_graph:
        return build(step)
    step.assemble()
    return step


def build(step: TrainingStep) -> tf.Tensor:
    """Build a step into the graph; return the loss before it, evaluated after it."""
    step._rate = step.next_rate()
    with v1.variable_scope(SCOPE):
        loss = step.task.loss
        with tf.control_dependencies(v1.get_collection(v1.GraphKeys.UPDATE_OPS)):
            loss = tf.identity(step.compute_loss((), []) if callable(loss) else loss)
        step.assemble()
        pairs = step.optimizer.compute_gradients(
            loss, step.trained, colocate_gradients_with_ops=True
        )
        summaries = []

        def advance() -> tf.Operation | None:
            done, made = step.advance(pairs)
            summaries.append(made)
            return done

        # Without this, a loss that no gradient reads could be computed after the
        # update.
        with tf.control_dependencies([loss]):
            updated = as_train_op(advance)
        with tf.control_dependencies([updated]):
            done = tf.identity(loss, name="train_loss")
    summaries[0].write(v1.summary)
    done.training_step = step
    return done


class TrainingStep(shared.TrainingStep):
    """The training step that ``optimize_loss`` returns; call it to take a step.

    ``step(*inputs)`` passes its arguments to the loss and returns its value, eagerly or
    inside of a ``tf.function``. With ``iter_size`` > 1 a call accumulates gradients,
    and each ``iter_size``-th call updates the variables. ``skip_update``, in the call
    or at construction, overrides this. ``tf.train.Checkpoint(step=step)`` saves the
    whole state of training.

    In a graph the step is already built. It is the attribute ``training_step`` of the
    returned tensor, for inspection.

    For the replicas of a strategy the step is made in ``strategy.scope()``, and
    ``strategy.run(step, args)`` calls it. Replicas average their gradients, so they
    stay equal and skip the same steps. With ``iter_size`` > 1 each micro-batch is
    averaged, because replicas cannot communicate inside a condition.

    Attributes:
        optimizer: the optimizer; with "mixed", the wrapper with masters.
        trained: the variables that are trained.
        global_step: the number of applied steps, an int64 variable.
        scaler: the automatic loss scaler, or None.
        last_step: the report of the last eager call; calls in graphs are not reported.
    """

    classes: ClassVar[Mapping[str, Any]] = OPTIMIZER_CLS_NAMES
    make_scaler: ClassVar[Any] = AutomaticLossScaler
    make_masters: ClassVar[Any] = MixedPrecisionOptimizerWrapper

    takes_instances = True
    """Whether the argument ``optimizer`` may be an optimizer."""
    weight_decay: Any = None

    @property
    def in_graph(self) -> bool:
        """Whether the step belongs to a graph for a session."""
        return builds_graph()

    def make_count(self, name: str) -> tf.Variable:
        """Create a count of steps; a graph has its own count of all steps."""
        if name == "global_step" and self.in_graph:
            return v1.train.get_or_create_global_step()
        return state_variable(name, 0, tf.int64)

    def make_optimizer(self) -> Optimizer:
        """Return the optimizer for its name, class or instance."""
        optimizer = self.task.optimizer
        arguments = dict(self.task.optimizer_params or {})
        is_made = self.takes_instances and isinstance(optimizer, Optimizer)
        if not is_made or arguments:
            if optimizer == "AdamW" and "weight_decay" in arguments:
                self.weight_decay = arguments["weight_decay"]
                arguments["weight_decay"] = self.current_decay()
            rate = self._rate if self.in_graph else float(self.next_rate())
            if optimizer in self.classes:
                rule = "GradientDescent" if optimizer == "SGD" else optimizer
                rules.check_arguments(rule, **arguments)
            optimizer = self.call_optimizer(arguments, rate)
        require_optimizer(optimizer, f"{OWNER}: optimizer")
        base = base_of(optimizer)
        if not self.in_graph and not any(name in vars(base) for name in RATES):
            raise errors.UnsupportedError(
                f"{OWNER}: optimizer: expected an optimizer that keeps its rate in _lr "
                f"or _learning_rate, got {type(base).__name__}; build it in a graph, "
                "where it is given the rate as a tensor."
            )
        return optimizer

    def current_decay(self) -> Any:
        """Return AdamW's decay for its constructor: a tensor, or a function of now."""
        return self.decay() if self.in_graph else self.decay

    def decay(self) -> Any:
        """Return AdamW's decay at this step: the rate times the argument."""
        decay = self.weight_decay
        rate = self.next_rate() if self._rate is None else self._rate
        return rate * (decay() if callable(decay) else decay)

    def advance(self, pairs: Pairs, skip_update: Any = None) -> shared.Done:
        """Take a step with these gradients, or add them to the sums."""
        if not awaits_sums():
            return super().advance(pairs, skip_update)
        # Inside of a condition, replicas can neither communicate nor create state.
        require_mirrored(OWNER, [*self.trained, self.global_step])
        pairs = sums_over_replicas(pairs)
        make_together(lambda: self.make_state(pairs))
        with summed_gradients():
            return super().advance(pairs, skip_update)

    def make_state(self, pairs: Pairs) -> None:
        """Create the slots and sums for these gradients, unless they exist."""
        touched = [variable for gradient, variable in pairs if gradient is not None]
        create = getattr(self.optimizer, "create_slots", self.optimizer._create_slots)
        with tf.init_scope():
            create(touched)
        if self._sums is not None:
            self._sums.begin([gradient for gradient, _ in pairs])

    def add_up(
        self, sums: shared.Accumulators, pairs: Pairs, skip_update: Any
    ) -> shared.Done:
        """Add a micro-batch, and take a step with the sums unless they must wait."""
        if tf.executing_eagerly():
            # As in a graph, the slots exist after the first micro-batch.
            self.make_state(pairs)
        else:
            touched = [v for g, v in pairs if g is not None]
            require_resources([*touched, self.global_step])
        return super().add_up(sums, pairs, skip_update)

    def checked(self, pairs: Pairs) -> Pairs:
        """Return the pairs; raise unless they fit and a gradient is present."""
        return check_pairs(pairs, OWNER)

    def apply(self, pairs: Pairs) -> tf.Operation | None:
        """Update with the optimizer, at the rate of this step."""
        base = base_of(self.optimizer)
        for name in RATES:
            if name in vars(base):
                setattr(base, name, self._rate)
        return apply_with(self.optimizer, pairs, self.global_step)


# -- regularization losses -------------------------------------------------------------


@tf.autograph.experimental.do_not_convert
def get_regularization_loss(
    scope: str | None = None,
    name: str = "total_regularization_loss",
    losses: Mapping[str, Any] | Iterable[Any] | None = None,
) -> tf.Tensor:
    """Return the sum of the losses in float32, each cast first: 0-d.

    In a graph, also in that of a ``tf.function``, they are the losses in the collection
    REGULARIZATION_LOSSES, to which ``tf.compat.v1.get_variable`` and v1 layers add
    them. Eager mode has no collections, so ``losses`` must be passed.

    Args:
        scope: a regular expression that must match at the start of a loss's name.
        name: the name of the sum; without losses the result is an unnamed constant 0.
        losses: replaces the collection: a mapping name -> loss, 0-d, or an iterable of
            losses. None among them is ignored; :func:`mp_regularizer_wrapper` returns
            None for a half-precision variable.

    Raises:
        UnsupportedError: a ValueError; eager mode without ``losses``, or a scope for
            losses without names.
        MalformedPairsError: a TypeError; ``losses`` is no collection of losses.
        OutOfRangeError: a ValueError; ``scope`` is no regular expression, or a loss is
            not 0-d.

    Origin: OpenSeq2Seq (8681d381ed40), ``get_regularization_loss``, modelled on
    ``tf.losses.get_regularization_loss``.

    Example:
        >>> penalties = {"encoder/w": tf.constant(1.5), "decoder/w": tf.constant(2.0)}
        >>> float(get_regularization_loss("encoder", losses=penalties))
        1.5
    """
    if losses is not None:
        return sum_losses(losses, name, scope)
    if tf.executing_eagerly():
        raise errors.UnsupportedError(
            "get_regularization_loss: expected losses=, because only a TensorFlow "
            "graph collects them, got None; pass losses={name: regularizer(weight)}."
        )
    key = v1.GraphKeys.REGULARIZATION_LOSSES
    return sum_losses(v1.get_collection(key, scope), name)
