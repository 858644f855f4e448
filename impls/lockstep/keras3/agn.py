"""Accumulated gradient normalization: asynchronous workers that share weights.

The shared weights are in :mod:`lockstep.keras3.agn_center`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep import errors, pipeline
from lockstep.checks import check_integer
from lockstep.keras3 import wrapper as stack
from lockstep.keras3.agn_center import (
    GLOBAL_VARIABLE_NAME,
    Center,
    RemoteCenter,
    make_like,
)
from lockstep.keras3.gradients import (
    Gradient,
    as_variable,
    is_variable,
    key_of,
    name_of,
    value_of,
)
from lockstep.ray.center import RayCenter, as_ray_host
from lockstep.tf.shared.gradients import densify, refuse_parameter_servers

GRADIENT, DELTA = COMMITS = ("gradient", "delta")
GRAD_VARIABLE_NAME = "grad_variable"

registered = keras.saving.register_keras_serializable(package="lockstep")


@registered
class AGNCustomGetter:
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
        self.worker_device = worker_device
        if host := as_ray_host(center):
            center = RemoteCenter(host)
        elif center is not None and not isinstance(center, Center):
            raise errors.GetterError(
                "AGNCustomGetter: center: expected the center of another worker's "
                f"getter, got {type(center).__name__}; pass center=getter.center."
            )
        else:
            center = Center() if center is None else center.for_worker()
        self.center: Center = center
        self.takes_all = False
        self.may_add = False
        self.names: dict[Any, str] = {}
        self._global_map: dict[Any, keras.Variable] = {}
        self._grad_map: dict[Any, keras.Variable] = {}

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
        is_model = hasattr(variables, "trainable_variables")
        listed = variables.trainable_variables if is_model else variables
        fine = isinstance(listed, Iterable) and not is_variable(listed)
        entries = list(listed) if fine else [None]
        pairs = [e if isinstance(e, tuple | list) else (None, e) for e in entries]
        fine = all(len(pair) == 2 and is_variable(pair[1]) for pair in pairs)
        if not fine or getattr(variables, "built", True) is False:
            raise errors.GetterError(
                "AGNCustomGetter: expected a built model, variables or pairs (name, "
                f"variable), got {variables!r:.80}; call a model on a batch first."
            )
        with self.center.lock:
            new = self._named(pairs)
            self.may_add = self.may_add or not self.center.shared
            self.center.check(new, self.may_add)
            for name, variable in new.items():
                key = key_of(variable)
                self._global_map[key] = self.center.join(name, variable)
                self.names[key] = name
                path = f"{GRAD_VARIABLE_NAME}/{name}"
                with tf.device(self.worker_device):
                    self._grad_map[key] = make_like(variable, path, zeros=True)
        return [as_variable(variable) for _, variable in pairs]

    def _named(self, pairs: Iterable[tuple[str | None, Any]]) -> dict[str, Any]:
        """Return name -> variable of the trainable ones that are not registered yet."""
        new: dict[str, Any] = {}
        known, taken = set(self._global_map), set(self.names.values())
        for own_name, variable in pairs:
            variable = as_variable(variable)
            if not variable.trainable or key_of(variable) in known:
                continue
            if own_name in taken:
                raise errors.UnsupportedError(
                    "AGNCustomGetter: expected one variable of each name, got another "
                    f"{own_name!r}; use other names."
                )
            first = own_name or name_of(variable)
            numbered = (f"{first}#{count}" for count in itertools.count(1))
            names = itertools.chain([first], numbered)
            name = next(name for name in names if name not in taken)
            new[name] = variable
            known.add(key_of(variable))
            taken.add(name)
        return new

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
class AGNOptimizer(stack.Wrapper):
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

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME

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
        owner = "AGNOptimizer"
        refuse_parameter_servers(owner)
        inside = pipeline.has_layer(optimizer, owner)
        scales = "unscale" in pipeline.stages_of(optimizer)
        if inside or scales or getattr(optimizer, "gradient_accumulation_steps", 0):
            raise errors.UnsupportedError(
                f"{owner}: expected the optimizer that a worker trains with, got "
                f"{type(optimizer).__name__}; put a loss scale around {owner}, use "
                "float32 variables without masters, accumulate with "
                f"communication_period, and make one {owner} for each worker."
            )
        if not isinstance(custom_getter, AGNCustomGetter):
            raise errors.GetterError(
                f"{owner}: custom_getter: expected an AGNCustomGetter, got "
                f"{custom_getter!r:.80}; pass the one that has the worker's variables."
            )
        if commit not in COMMITS:
            raise errors.unknown_name(f"{owner}: commit", commit, COMMITS)
        check_integer("AGNOptimizer", "num_worker", num_worker)
        check_integer("AGNOptimizer", "communication_period", communication_period)
        super().__init__(optimizer, name)
        stack.refuse_several(self, owner, "pass a single optimizer")
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
        for variable in variables:
            if key_of(variable) not in getter._global_map:
                raise errors.NotFromGetterError(
                    "AGNOptimizer: expected variables of its AGNCustomGetter, got "
                    f"{name_of(variable)!r}; call the getter with it first."
                )
        super().build(variables)

    def build_state(self, variables: Sequence[Any]) -> None:
        """Add the getter's variables and the center's optimizer to the state."""
        getter, center = self.custom_getter, self.custom_getter.center
        owned = {getter.names[key_of(variable)]: variable for variable in variables}
        with center.lock:
            center.follow(self.inner_optimizer, owned)
        for variable in variables:
            total = getter._grad_map[key_of(variable)]
            shared = getter._global_map[key_of(variable)]
            self._slots.add(variable, GRAD_VARIABLE_NAME, total)
            self._slots.add(variable, GLOBAL_VARIABLE_NAME, shared)
            self._track_variable(total)
            if not center.saves_itself:
                self._track_variable(shared)
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
        tf.cond(self._is_due(), lambda: self._communicate(present, rate), lambda: None)
        if tf.executing_eagerly():
            step = int(self.local_step.numpy())
            left = -step % self.communication_period
            ending = f"{left} more before the push" if left else "pushed and pulled"
            self._extend_report(gradients, variables, f"local step {step}, {ending}")

    def _is_due(self) -> tf.Tensor:
        """Whether the round ends with this local step."""
        step = self.local_step.value.read_value()
        return tf.equal(step % self.communication_period, 0)

    def _accumulators(self, variables: Iterable[Any]) -> list[tf.Variable]:
        totals = self.custom_getter._grad_map
        return [value_of(totals[key_of(variable)]) for variable in variables]

    def _communicate(self, variables: Sequence[Any], rate: tf.Tensor) -> None:
        """Push the means of these variables, and pull the shared ones."""
        getter = self.custom_getter
        sums = [total.read_value() for total in self._accumulators(variables)]
        names = [getter.names[key_of(variable)] for variable in variables]
        means = [total / self.communication_period for total in sums]
        pushed_rate = None if self.commit == DELTA else rate
        getter.center.push(dict(zip(names, means, strict=True)), pushed_rate)
        self._begin_round(variables)

    def _begin_round(self, variables: Sequence[Any]) -> None:
        """Copy the shared variables to these, and reset their accumulators to 0."""
        names = [self.custom_getter.names[key_of(variable)] for variable in variables]
        pulled = self.custom_getter.center.pull(names)
        for variable, name in zip(variables, names, strict=True):
            value_of(variable).assign(pulled[name])
        for total in self._accumulators(variables):
            total.assign(tf.zeros_like(total))

    def get_init_op(self, task_index: int) -> None:
        """Set a worker's variables to the shared ones and its accumulators to 0.

        This is done when the call returns; TensorFlow 1 returns an operation.
        ``task_index`` has no effect.

        Raises:
            NoGradientsError: a ValueError; the getter has no variables.
        """
        variables = [reference.deref() for reference in self.custom_getter._global_map]
        if not variables:
            raise errors.NoGradientsError(
                "AGNOptimizer.get_init_op: expected at least one trainable variable, "
                "got none; call the AGNCustomGetter with the worker's variables first."
            )
        self._begin_round(variables)

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
        shared = self.custom_getter.center.slots.of(var).get(name)
        return super().get_slot(var, name) if shared is None else shared

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
