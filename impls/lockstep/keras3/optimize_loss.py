"""``optimize_loss`` of OpenSeq2Seq for Keras: a training step in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep import errors
from lockstep.keras3 import gradients as gradients_of
from lockstep.keras3 import optimizers as rules
from lockstep.keras3 import wrapper as stack
from lockstep.keras3.gradients import Gradient, Pairs, TrainV1, value_of
from lockstep.keras3.mixed_precision import MixedPrecisionOptimizerWrapper
from lockstep.pipeline import base_of
from lockstep.tf.shared import optimize_loss as shared
from lockstep.tf.shared.gradients import require_gradients
from lockstep.tf.shared.loss_scales import AutomaticLossScaler
from lockstep.tf.shared.post_process import sum_losses

Optimizer = keras.optimizers.Optimizer
OWNER = shared.OWNER

OPTIMIZER_CLS_NAMES: dict[str, Callable[..., Optimizer]] = {
    "Adagrad": rules.AdagradOptimizer,
    "Adam": rules.AdamOptimizer,
    "Ftrl": rules.FtrlOptimizer,
    "Momentum": rules.MomentumOptimizer,
    "RMSProp": rules.RMSPropOptimizer,
    "SGD": rules.GradientDescentOptimizer,
    "AdamW": rules.AdamWOptimizer,
}
"""The names that ``optimize_loss`` accepts, and their classes: with Keras' rules."""


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
    reduction: Any = None,
) -> TrainingStep:
    """Return an object that takes one step of training each time it is called.

    rate = learning_rate_decay_fn(steps applied so far); g = gradients of the loss,
    times 1 / scale; with ``iter_size`` > 1, g = sum of g / iter_size over the
    micro-batches. g is averaged over the ranks. With "mixed", the step is skipped if g
    is not finite. g is clipped or scaled by LARC. Then the optimizer updates the
    variables, and the step is counted. The default writer of ``tf.summary`` gets the
    summaries with each applied step.

    Args:
        loss: a function that computes the loss, a 0-d tensor, or a tuple that begins
            with it; it gets the arguments of each call.
        optimizer: a name of ``OPTIMIZER_CLS_NAMES``; or a class or a function that
            returns an optimizer, called with ``learning_rate=`` and
            ``optimizer_params``; or an optimizer, without ``optimizer_params``. Its
            rate must not be a schedule, because each step sets it.
        optimizer_params: the optimizer's arguments by name. "AdamW" decays by
            rate x ``weight_decay``, which is Keras' rule.
        learning_rate_decay_fn: a function that returns the rate, or a float, the rate
            of every step. Each step calls it with the number of steps applied so far,
            int64 and 0-d; see ``lr_policies``.
        var_list: the variables to train. None: those of ``model``.
        dtype: float32, float16, or "mixed" for half-precision variables with float32
            masters and a scaled loss. With the policy ``mixed_float16`` variables are
            float32, and "mixed" scales the loss.
        clip_gradients: the largest global norm, > 0. Not together with LARC.
        summaries: names of ``OPTIMIZER_SUMMARIES``. None stands for ``learning_rate``,
            ``global_gradient_norm`` and ``loss_scale``.
        larc_params: ``larc_eta``, ``larc_mode``, ``min_update``, ``epsilon``.
        loss_scaling: with "mixed": a number, "Backoff" or "LogMax", or a scale object.
        loss_scaling_params: parameters of the named scaler; refused without one.
        on_horovod: average over the ranks of ``reduction``.
        iter_size: micro-batches in a step. A gradient is present in all of them or in
            none, and either sparse or dense.
        skip_update_ph: whether to accumulate without an update: a bool, a 0-d tensor,
            or a function that is called in each step. None: each ``iter_size``-th call
            updates.
        model: a model; its trainable variables are trained if ``var_list`` is None.
        reduction: computes the average; None: this process is the only rank. The
            replicas of one ``tf.distribute`` strategy, in whose ``run`` the step is
            called, are always averaged, and need ``on_horovod``.

    Raises:
        ValueError: an unknown name (the nearest is given), a value out of its range,
            nothing to train.
        TypeError: an argument that the optimizer needs or does not have; a
            ``learning_rate_decay_fn`` that cannot be called with the steps.
        KeyError: "AdamW" without ``weight_decay``.
        RuntimeError: ``loss`` is no function.
        AttributeError and ValueError in one: clipping and LARC together.

    Origin: OpenSeq2Seq (8681d381ed40), ``optimizers/optimizers.py``.

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
    arguments = dict(locals())
    chosen = shared.to_train(var_list, model)
    variables = gradients_of.require_all(chosen, OWNER)
    gradients_of.refuse_overwritten(OWNER, variables)
    strategies = [
        variable.distribute_strategy
        for variable in map(value_of, variables)
        if isinstance(variable, tf.distribute.DistributedValues)
    ]
    strategy = [*strategies, tf.distribute.get_strategy()][0]
    step = TrainingStep(arguments, variables)
    with gradients_of.scope_of(strategy):
        step.assemble()
    return step


class Adapted(stack.Wrapper):
    """A Keras optimizer with TensorFlow 1's interface, and reports."""

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the optimizer's step; report which variables had a gradient."""
        super().update(gradients, variables)
        if tf.executing_eagerly():
            pairs = list(zip(gradients, variables, strict=True))
            self._set_report(shared.applied(pairs))


class TrainingStep(shared.TrainingStep):
    """The training step that ``optimize_loss`` returns; call it to take a step.

    ``step(*inputs)`` passes its arguments to the loss and returns its value, eagerly or
    inside of a ``tf.function``. With ``iter_size`` > 1 a call accumulates gradients,
    and each ``iter_size``-th call updates the variables. ``skip_update``, in the call
    or at construction, overrides this.

    ``tf.train.Checkpoint(step=step)`` saves the whole state of training. Summaries are
    written to the default writer of ``tf.summary``, with ``global_step`` as their step.

    Attributes:
        optimizer: the optimizer; with "mixed", the wrapper with masters.
        trained: the variables that are trained.
        global_step: the number of applied steps, an int64 variable.
        scaler: the automatic loss scaler, or None.
        last_step: the report of the last eager call; calls in graphs are not reported.
    """

    classes = OPTIMIZER_CLS_NAMES
    make_scaler = AutomaticLossScaler
    make_masters = MixedPrecisionOptimizerWrapper

    def make_count(self, name: str) -> tf.Variable:
        """Create a count of steps: int64, 0-d."""
        return value_of(gradients_of.state_variable(name, 0, "int64"))

    def assemble(self) -> None:
        """Create the optimizer, its loss scaler, and their state."""
        super().assemble()
        self.optimizer.ensure_built(self.trained)

    def make_optimizer(self) -> Optimizer:
        """Return the optimizer for its name, class or instance; its rate can be set."""
        optimizer = self.task.optimizer
        arguments = dict(self.task.optimizer_params or {})
        if not isinstance(optimizer, Optimizer) or arguments:
            optimizer = self.call_optimizer(arguments, float(self.next_rate()))
        owner = f"{OWNER}: optimizer"
        stack.require_optimizer(optimizer, owner)
        remedy = 'pass the one inside, and dtype="mixed", which scales the loss'
        stack.refuse_keras_scale(optimizer, owner, remedy)
        stack.refuse_factor(optimizer, owner)
        stack.refuse_several(optimizer, owner, "pass a single optimizer")
        base = base_of(optimizer)
        if not isinstance(base._learning_rate, keras.Variable):
            raise errors.UnsupportedError(
                f"{owner}: expected an optimizer whose learning_rate is a number, got "
                f"{type(base).__name__} with a schedule; leave its schedule to "
                "learning_rate_decay_fn."
            )
        return optimizer if isinstance(optimizer, TrainV1) else Adapted(optimizer)

    def advance(self, pairs: Pairs, skip_update: Any = None) -> Any:
        """Take a step with these gradients, or add them to the sums."""
        advance = super().advance
        if not tf.distribute.has_strategy():
            return advance(pairs, skip_update)
        gradients, variables = map(list, zip(*pairs, strict=True))

        def begin(gradients: list[Gradient]) -> None:
            if self._sums is not None:
                self._sums.begin(gradients)

        def take(gradients: list[Gradient]) -> None:
            advance(list(zip(gradients, variables, strict=True)), skip_update)

        gradients_of.for_all_replicas(OWNER, begin, take, gradients, variables)
        return None

    def checked(self, pairs: Pairs) -> Pairs:
        """Return the pairs; raise unless they fit and a gradient is present."""
        gradients, variables = map(list, zip(*pairs, strict=True))
        gradients = gradients_of.check_gradients(gradients, variables, OWNER)
        require_gradients(OWNER, gradients, variables)
        return list(zip(gradients, variables, strict=True))

    def apply(self, pairs: Pairs) -> tf.Operation:
        """Update with the optimizer, at the rate of this step."""
        self.optimizer.learning_rate = self._rate
        present = [(g, v) for g, v in pairs if g is not None]
        self.optimizer.apply_gradients(present, self.global_step)
        return tf.no_op()


@tf.autograph.experimental.do_not_convert
def get_regularization_loss(
    scope: str | None = None,
    name: str = "total_regularization_loss",
    losses: Mapping[str, Any] | Iterable[Any] | None = None,
) -> tf.Tensor:
    """Return the sum of the losses in float32, each cast first: 0-d.

    The original reads them from a collection of its graph. Keras has ``model.losses``,
    which ``fit`` adds to the loss. A custom training loop must pass them.

    Args:
        scope: a regular expression that must match at the start of a loss's name.
        name: the name of the sum.
        losses: ``model.losses``, which have no names, or a mapping name -> loss, 0-d.
            None among them is ignored. Without losses the sum is 0.

    Raises:
        UnsupportedError: a ValueError; no ``losses``, or a scope without names.
        MalformedPairsError: a TypeError; ``losses`` is no collection of losses.
        OutOfRangeError: a ValueError; ``scope`` is no regular expression, or a loss is
            not 0-d.

    Origin: OpenSeq2Seq (8681d381ed40), ``get_regularization_loss``.

    Example:
        >>> weights = {"encoder/w": keras.Variable([1.0, 2.0])}
        >>> penalty = keras.regularizers.L2(0.5)
        >>> penalties = {path: penalty(weight) for path, weight in weights.items()}
        >>> float(get_regularization_loss("encoder", losses=penalties))
        2.5
    """
    if losses is None:
        raise errors.UnsupportedError(
            "get_regularization_loss: expected losses, because there is no collection "
            "of them here, got None; pass losses=model.losses."
        )
    return sum_losses(losses, name, scope)
