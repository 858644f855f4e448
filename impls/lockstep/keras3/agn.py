"""Accumulated gradient normalization: asynchronous workers that share weights.

Workers of one process hold the same :class:`Center`. Workers of several processes have
a :class:`RemoteCenter` each; the center on Ray applies their pushes with
:class:`KerasWeights`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import keras
import tensorflow as tf

from lockstep import pipeline
from lockstep.errors import UnsupportedError
from lockstep.interface import Array
from lockstep.keras3 import wrapper as stack
from lockstep.keras3.gradients import Gradient, value_of
from lockstep.ray.center import RayCenter
from lockstep.tf.shared import agn as shared
from lockstep.tf.shared.gradients import (
    MODEL,
    densify,
    name_of,
    refuse_parameter_servers,
)

GLOBAL_VARIABLE_NAME = shared.GLOBAL_VARIABLE_NAME
GRAD_VARIABLE_NAME = shared.GRAD_VARIABLE_NAME
GRADIENT, DELTA = shared.COMMITS
RATE = "learning_rate"

registered = keras.saving.register_keras_serializable(package="lockstep")


@registered
class AGNCustomGetter(shared.Getter):
    """Make the shared variable and the accumulator of each of a worker's variables.

    Keras has no variable scopes with custom getters. So it is called with a model or
    its variables instead. Workers of one process share one center.

    A configuration, so also a file, has no variables. A getter from a configuration
    accepts the variables that its optimizer is built with, and has its own center.

    Args:
        worker_device: the device of the accumulators, such as ``/cpu:0``.
        center: the :class:`Center` of the other workers, their getter's ``center``;
            None creates one. ``"ray://NAME"`` or a :class:`~lockstep.ray.RayCenter` is
            a center in its own process, for workers of other processes and machines.

    Attributes:
        center: the weights that the workers share.

    Raises:
        GetterError: a TypeError; ``center`` is no center.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNCustomGetter``. There an accumulator
    has the variable's value until the init op has run; here it starts at zero.

    Example:
        >>> w = keras.Variable([1.0, 2.0], name="w")
        >>> first = AGNCustomGetter("/cpu:0")
        >>> _ = first([w])
        >>> second = AGNCustomGetter("/cpu:0", center=first.center)
        >>> _ = second([keras.Variable([0.0, 0.0], name="w")])
        >>> [shared.path for shared in second.center.shared.values()]
        ['global_center_variable/w']
    """

    def __init__(
        self, worker_device: str, center: Center | RayCenter | str | None = None
    ) -> None:
        center = shared.center_for_worker(center, Center, RemoteCenter)
        super().__init__(worker_device, center)
        self.takes_all = False

    def __call__(
        self, variables: keras.Model | Iterable[Any] | Iterable[tuple[str, Any]]
    ) -> list[Any]:
        """Register variables and return them.

        Variables that are not trainable, or already registered, are not changed. Names
        are paths, which must be the same in all workers: name models and layers. A path
        that is already used gets a number, in the order of the variables. The worker
        that fills the center may add variables later. Other workers use the existing
        ones.

        Args:
            variables: a built model; variables of Keras or TensorFlow; or pairs
                (name, variable), if paths differ.

        Raises:
            GetterError: a TypeError; anything else, or a model that is not built yet.
            UnsupportedError: a ValueError; the center has no such variable, or one of
                another shape or dtype; a name is already used. Then no variable is
                registered.
        """
        return self._register(variables, make_like)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments, without the center."""
        return {"worker_device": self.worker_device}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> AGNCustomGetter:
        """Create a getter from the result of ``get_config``."""
        getter = cls(**config)
        getter.takes_all = True
        return getter


@registered
class AGNOptimizer(shared.Worker, stack.Wrapper):
    """Train a worker's own weights; every P steps push a mean gradient to shared ones.

    With P = ``communication_period``, g a gradient at the worker's weights w, a the
    accumulator of w and c the shared weights, for each variable with a gradient:

    1. ``optimizer`` applies g to w;
    2. a = a + g;
    3. local_step = local_step + 1, once a call;
    4. if local_step is a multiple of P: a = a / P; an optimizer like ``optimizer``
       applies a to c, with slots and a count that belong to c, and with this worker's
       learning rate; then global_step = global_step + 1, w = c, a = 0. The slots of w
       stay.

    With ``commit="delta"``, as in the paper, step 2 adds to a the change that step 1
    made to w, and step 4 is c = c + a / P. A variable whose gradient is absent in the
    call that ends a round is neither pushed nor pulled. ``fit`` does all of this.

    ``get_init_op(task_index)`` sets w = c and a = 0 for every variable. Call it before
    training.

    Args:
        optimizer: any Keras optimizer, or a wrapper, without gradient accumulation.
        num_worker: the number of workers, >= 1; it changes no result.
        custom_getter: the :class:`AGNCustomGetter` that made the shared variables.
        communication_period: P: local steps between two pushes, >= 1.
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        commit: ``"gradient"`` or ``"delta"``.

    Attributes:
        inner_optimizer: the optimizer of this worker.
        local_step: the worker's steps, an int32 variable.
        last_step: what the last eager step did, a
            :class:`~lockstep.interface.StepReport`. Steps in graphs and inside of a
            ``tf.function``, where ``fit`` takes its own, are not reported.

    Raises:
        NotAnOptimizerError: a TypeError; ``optimizer`` is no Keras optimizer.
        GetterError: a TypeError; ``custom_getter`` is none of this backend.
        OutOfRangeError: a ValueError; a period or count below 1.
        UnknownNameError: a ValueError; an unknown ``commit``.
        UnsupportedError: a ValueError; ``optimizer`` scales losses, trains masters, or
            accumulates gradients.

    State: accumulators, local step, shared variables and their slots are in
    ``variables`` and in ``.keras`` files. With a center on Ray, which saves itself, the
    shared part is left out.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNOptimizer``; J. Hermans, G. Spanakis,
    R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368). There the
    powers of beta belong to the worker, row clipping inside does not clip the shared
    rows, and ``get_slot`` and ``variables`` return nothing.

    Example:
        >>> weight = keras.Variable([1.0], name="weight")
        >>> getter = AGNCustomGetter("/cpu:0")
        >>> sgd = keras.optimizers.SGD(0.5)
        >>> _ = getter([weight])
        >>> worker = AGNOptimizer(sgd, 1, getter, communication_period=2)
        >>> for number in (1.0, 0.5):
        ...     worker.apply([keras.ops.array([number])], [weight])
        ...     print(weight.numpy()[0], worker.last_step.reason)
        0.5 every gradient was present; local step 1, 1 more before the push
        0.625 every gradient was present; local step 2, pushed and pulled
    """

    argument = "optimizer"

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
        commit: str = GRADIENT,
    ) -> None:
        getter = custom_getter, AGNCustomGetter
        shared.check_worker(
            optimizer, num_worker, *getter, communication_period, commit
        )
        super().__init__(optimizer, name)
        stack.refuse_several(self, "AGNOptimizer", "pass a single optimizer")
        # Not setattr: Keras and TensorFlow would track the attribute.
        vars(self)["custom_getter"] = custom_getter
        self.num_worker = num_worker
        self.communication_period = communication_period
        self.commit = commit
        self.local_step = keras.Variable(
            0, dtype="int32", trainable=False, name="local_step"
        )
        custom_getter.center.begin(commit, optimizer)

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``, which the getter must know."""
        variables, getter = list(variables), self.custom_getter
        if getter.takes_all and not self.built:
            getter(variables)
        self._require_known(variables)
        super().build(variables)

    def build_state(self, variables: Sequence[Any]) -> None:
        """Add the getter's variables and the center's optimizer to the state."""
        getter, center = self.custom_getter, self.custom_getter.center
        owned = {getter.names[variable]: variable for variable in variables}
        with center.lock:
            center.follow(self.inner_optimizer, owned)
        for variable in variables:
            total, weight = getter._grad_map[variable], getter._global_map[variable]
            self._slots.add(variable, GRAD_VARIABLE_NAME, total)
            self._slots.add(variable, GLOBAL_VARIABLE_NAME, weight)
            self._track_variable(total)
            if not center.saves_itself:
                self._track_variable(weight)
        if not center.saves_itself:
            for state in center.optimizer.variables:
                self._track_variable(state)
            # An outer wrapper that skips a variable then also restores these slots.
            self._slots.by_variable.update(center.slots.by_variable)

    def _train(self, *arguments: Any) -> None:
        """Take a local step, unless the strategy is a ``ParameterServerStrategy``."""
        refuse_parameter_servers("AGNOptimizer")
        super()._train(*arguments)

    def _counted(self, before: tf.Tensor) -> tf.Tensor:
        """Return whether a round has ended, which ``global_step`` counts."""
        return self._is_due()

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the local step, accumulate, and end the round if it is due."""
        pairs = zip(gradients, variables, strict=True)
        changes = [gradient for gradient in gradients if gradient is not None]
        present = [variable for gradient, variable in pairs if gradient is not None]
        rate = self.base_optimizer._get_current_learning_rate()
        is_delta = self.commit == DELTA
        before = [value_of(v).read_value() for v in present] if is_delta else []
        super().update(gradients, variables)
        if is_delta:
            after = [value_of(variable).read_value() for variable in present]
            changes = [w - v for w, v in zip(after, before, strict=True)]
        for total, change in zip(self._accumulators(present), changes, strict=True):
            total.assign_add(densify(change, total))
        self.local_step.assign_add(1)
        tf.cond(self._is_due(), lambda: self._end_round(present, rate), tf.no_op)
        if tf.executing_eagerly():
            self._extend_report(gradients, variables, self._place_in_round())

    def _is_due(self) -> tf.Tensor:
        """Whether the round ends with this local step."""
        step = self.local_step.value.read_value()
        return tf.equal(step % self.communication_period, 0)

    def make_session_run_hook(
        self, is_chief: bool, task_index: int
    ) -> keras.callbacks.Callback:
        """Return a callback for ``fit`` that runs the init op before the first batch.

        TensorFlow 1 has session hooks instead of callbacks. After the last batch a
        center on Ray learns that this worker is done. The arguments have no effect.
        """
        return keras.callbacks.LambdaCallback(
            on_train_begin=lambda logs: self.get_init_op(task_index),
            on_train_end=lambda logs: self.custom_getter.center.leave(),
        )

    def get_slot(self, var: Any, name: str) -> keras.Variable | None:
        """Return a slot of a worker's variable or of its shared variable.

        The shared variable and the accumulator are slots too, with this class'
        constants as names.
        """
        slot = self.custom_getter.center.slots.of(var).get(name)
        return super().get_slot(var, name) if slot is None else slot

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; the getter without variables."""
        getter = keras.saving.serialize_keras_object(self.custom_getter)
        return {
            **super().get_config(),
            "num_worker": self.num_worker,
            "custom_getter": getter,
            "communication_period": self.communication_period,
            "name": self.name,
            "commit": self.commit,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Create an optimizer from the result of ``get_config``."""
        getter = keras.saving.deserialize_keras_object(
            config["custom_getter"], custom_objects
        )
        return super().from_config({**config, "custom_getter": getter}, custom_objects)


# -- the shared variables --------------------------------------------------------------


class Center(shared.Center):
    """Shared variables with their own optimizer, which is a copy of the workers'.

    It has the configuration of the first worker's optimizer. Before each push it gets
    the learning rate of the pushing worker, so schedules and callbacks have an effect.
    """

    def __init__(self) -> None:
        super().__init__()
        self.optimizer: keras.optimizers.Optimizer | None = None
        self.slots = stack.Slots()

    def follow(self, optimizer: Any, owned: Mapping[str, Any]) -> None:
        """Create an optimizer like that of a worker with these variables, by name."""
        if self.optimizer is None:
            config = config_of(optimizer)
            self.optimizer = keras.saving.deserialize_keras_object(config)
            for name, variable in owned.items():
                # Row clipping inside finds variables by the worker's paths.
                vars(self.shared[name])[MODEL] = variable
            variables = [self.shared[name] for name in owned]
            self.slots = stack.build_observed(self.optimizer, variables)
        require_same(self.shared, owned)

    def push(self, changes: Mapping[str, Any], rate: Any) -> tf.Operation | None:
        """Take a step on mean gradients, or add differences.

        ``rate``: the worker's learning rate; None: ``changes`` are added.
        """
        if rate is None:
            return self.add(changes)
        with self.lock:
            pipeline.base_of(self.optimizer)._learning_rate.value.assign(rate)
            variables = [self.shared[name] for name in changes]
            self.optimizer.apply(list(changes.values()), variables)
            return tf.no_op()


def require_same(weights: Mapping[str, Any], owned: Mapping[str, Any]) -> None:
    """Raise unless a worker trains exactly the shared variables."""
    if sorted(weights) != sorted(owned):
        raise UnsupportedError(
            f"AGNOptimizer: expected an optimizer of the variables {list(weights)}, as "
            f"the other workers', got {list(owned)}; give every worker's optimizer the "
            "same variables."
        )


def make_like(name: str, variable: Any, prefix: str, zeros: bool) -> keras.Variable:
    """Create a variable with the value of another, or zeros like it."""
    value = value_of(variable)
    start = tf.zeros_like(value) if zeros else tf.identity(value)
    *outer, last = f"{prefix}/{name}".split("/")
    with contextlib.ExitStack() as scopes:
        for part in outer:
            scopes.enter_context(keras.name_scope(part))
        # A function, because Keras copies no tensor: it would share the memory.
        made = keras.Variable(
            lambda shape, dtype=None: tf.identity(start),
            shape=value.shape,
            dtype=value.dtype.name,
            trainable=False,
            name=last,
        )
    vars(made)[MODEL] = variable
    return made


def config_of(optimizer: keras.optimizers.Optimizer) -> dict[str, Any]:
    """Return an optimizer's configuration, with its current rate as a number."""
    config: dict[str, Any] = keras.saving.serialize_keras_object(optimizer)
    inside, layer = config, optimizer
    while isinstance(layer, stack.Wrapper):
        inside, layer = inside["config"][layer.argument], layer.inner_optimizer
    rate = layer._get_current_learning_rate()
    inside["config"][RATE] = float(tf.convert_to_tensor(value_of(rate)).numpy())
    return config


class KerasWeights(shared.ServedTensors):
    """The weights of a served center; ``paths``: name -> a worker's variable's path."""

    def __init__(
        self,
        config: Mapping[str, Any],
        paths: Mapping[str, str],
        weights: Mapping[str, Array],
    ) -> None:
        self.config = dict(config)
        self.paths = paths
        self.weights = dict(weights)

    @cached_property
    def center(self) -> Center:
        """The center, created like the worker's own."""
        center = Center()
        with tf.device("/cpu:0"):
            for name, weight in self.weights.items():
                own = tf.Variable(weight)
                make = partial(make_like, name, own, GLOBAL_VARIABLE_NAME, False)
                center.join(name, make)
            optimizer = keras.saving.deserialize_keras_object(self.config)
            paths = {name: SimpleNamespace(path=p) for name, p in self.paths.items()}
            center.follow(optimizer, paths)
        self.weights = {}
        return center

    def push(self, changes: Mapping[str, Array], options: Any) -> None:
        """Take a step on mean gradients with a worker's learning rate."""
        with tf.device("/cpu:0"):
            gradients = {name: tf.constant(c) for name, c in changes.items()}
            self.center.push(gradients, options[RATE] if options else None)

    def state(self) -> dict[str, Any]:
        """Return the optimizer's variables."""
        variables = self.center.optimizer.variables
        return {
            f"{k} {variable.name}": variable for k, variable in enumerate(variables)
        }


class RemoteCenter(shared.RemoteTensors, Center):
    """A worker's view of a center in another process. Its steps are eager."""

    backend = "keras3"

    def rule_of(self, optimizer: Any, clips_rows: bool) -> dict[str, Any]:
        """Return the configuration of an optimizer."""
        return config_of(optimizer)

    def make_weights(self, rule: Any, weights: dict[str, Array]) -> KerasWeights:
        """Return weights with this configuration, for another process."""
        paths = {name: name_of(variable) for name, variable in self.shared.items()}
        return KerasWeights(rule, paths, weights)

    def follow(self, optimizer: Any, owned: Mapping[str, Any]) -> None:
        """Raise if the worker trains other variables; no optimizer is needed here."""
        require_same(self.shared, owned)

    def push(self, changes: Mapping[str, Any], rate: Any) -> None:
        """Push the accumulated changes, and the worker's learning rate."""
        self.require_eager()
        options = None if rate is None else {RATE: rate.numpy()}
        self.send({name: change.numpy() for name, change in changes.items()}, options)
