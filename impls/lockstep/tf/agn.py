"""Accumulated gradient normalization: asynchronous workers that share weights.

The shared variables are in :mod:`lockstep.tf.agn_center`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import tensorflow as tf

from lockstep import errors
from lockstep.interface import NO_EAGER_STEP
from lockstep.ray.center import RayCenter
from lockstep.tf import wrapper as base
from lockstep.tf.agn_center import Center, RemoteCenter
from lockstep.tf.mixed_precision import share_row_limits
from lockstep.tf.shared import agn as shared
from lockstep.tf.shared.gradients import (
    as_variable,
    densify,
    name_of,
    refuse_parameter_servers,
)
from lockstep.tf.wrapper import Optimizer, Pairs, Wrapper, with_strict

v1 = tf.compat.v1

GLOBAL_VARIABLE_NAME = shared.GLOBAL_VARIABLE_NAME
GRAD_VARIABLE_NAME = shared.GRAD_VARIABLE_NAME
GRADIENT, DELTA = shared.COMMITS

LOCAL, GLOBAL = v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.GLOBAL_VARIABLES


@with_strict
class AGNCustomGetter(shared.Getter, tf.Module):
    """Make the shared variable and the accumulator of each of a worker's variables.

    As ``custom_getter`` of a variable scope, for each trainable variable N:

    - N itself: on the worker, trainable, in ``LOCAL_VARIABLES``;
    - ``global_center_variable/N``: on the current device, in ``GLOBAL_VARIABLES``;
    - ``grad_variable/N``: on the worker, in ``LOCAL_VARIABLES``.

    Scopes follow the prefix. Other variables, and variables that are reused, are not
    changed.

    In eager mode call it with the variables instead, with pairs (name, variable), or
    with an object that has ``trainable_variables``.

    Names must be the same in all workers. The worker that fills the center may add
    variables later. Other workers use the existing ones.

    Workers of one process share a ``center``. Workers in separate processes find the
    shared variables by name on the parameter servers, as in old code.

    Args:
        worker_device: a device for ``tf.compat.v1.device``.
        center: the :class:`Center` of the other workers, their getter's ``center``;
            None creates one. ``"ray://NAME"`` or a :class:`~lockstep.ray.RayCenter` is
            a center in its own process, for workers of other processes and machines.

    Attributes:
        center: the weights that the workers share.

    Raises:
        GetterError: a TypeError; an invalid ``center``, or an invalid call argument.
        UnsupportedError: a ValueError; the center has no variable of a name, or one of
            another shape or dtype; a name is already used; a partitioned variable; a
            reference variable whose shared variable is in another process.

    Origin: ``tf.contrib.opt.AGNCustomGetter``, TensorFlow 1.15.

    Example:
        >>> with tf.Graph().as_default():
        ...     getter = AGNCustomGetter("/cpu:0")
        ...     with tf.compat.v1.variable_scope("net", custom_getter=getter):
        ...         w = tf.compat.v1.get_variable("w", [2])
        ...     getter._global_map[w].name
        'global_center_variable/net/w:0'
    """

    def __init__(
        self,
        worker_device: Any,
        center: Center | RayCenter | str | None = None,
    ) -> None:
        center = shared.center_for_worker(center, Center, RemoteCenter)
        super().__init__(worker_device, center)

    def __call__(
        self, getter: Any, name: str | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """Create a variable like a custom getter, or register existing variables.

        Args:
            getter: creates a variable; in eager mode also the variables to register.
            name: the name of the variable; None for existing variables.
            args: arguments of ``getter``.
            kwargs: arguments of ``getter``.
        """
        if name is None and base.builds_graph():
            raise errors.UnsupportedError(
                "AGNCustomGetter: expected to make the variables of a graph, got "
                "variables; use it as custom_getter of a tf.compat.v1.variable_scope."
            )
        if name is None:
            return self._register(getter, make_like)
        if not kwargs.get("trainable"):
            return getter(name, *args, **kwargs)
        with v1.device(self.worker_device):
            own = getter(name, *args, **{**kwargs, "collections": [LOCAL]})
        if not isinstance(own, tf.Variable):
            raise errors.UnsupportedError(
                f"AGNCustomGetter: expected a variable in one part, got {name!r} with "
                "a partitioner; leave it out."
            )
        # AUTO_REUSE is not True, and may be the first use.
        if kwargs.get("reuse") is True or own in self._global_map:
            return own

        def make(prefix: str, zeros: bool) -> tf.Variable:
            collections = [GLOBAL if prefix == GLOBAL_VARIABLE_NAME else LOCAL]
            options = {"trainable": False, "collections": collections}
            if zeros:
                dtype, start = own.dtype.base_dtype, tf.zeros_initializer()
                options |= {"shape": own.shape, "dtype": dtype, "initializer": start}
            options = self._options_beside(kwargs) | options
            return getter(f"{prefix}/{name}", *args, **options)

        new = shared.unused_name(name, {*self.names.values()})
        self._check({new: own})
        self._enter(new, own, make)
        return own

    def _options_beside(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a variable's options for its shared variable and its accumulator."""
        return {**kwargs, "regularizer": None}

    def _check_placement(self, own: tf.Variable, center: tf.Variable) -> None:
        """Raise for a reference variable that another process shares: a race."""
        if not base.is_reference(center) or not center.device:
            return
        places = [tf.DeviceSpec.from_string(v.device) for v in (own, center)]
        here, there = [(place.job, place.task) for place in places]
        if there[0] is not None and here != there:
            raise errors.UnsupportedError(
                f"AGNCustomGetter: expected a resource variable for {name_of(own)!r}, "
                f"because {center.device} is another process, got a reference "
                "variable; make it with use_resource=True, or call "
                "enable_resource_variables()."
            )

    def _enter(self, name: str, own: tf.Variable, make: shared.Make) -> None:
        """Register a variable by its name at the center."""
        super()._enter(name, own, make)
        self._check_placement(own, self._global_map[own])
        total = self._grad_map[own]
        self._track_trackable(total, f"{GRAD_VARIABLE_NAME}/{name}")


def make_like(
    name: str, variable: tf.Variable, prefix: str, zeros: bool
) -> tf.Variable:
    """Create a variable with the value of another, or zeros like it."""
    value = as_variable(variable).read_value()
    start = tf.zeros_like(value) if zeros else value
    return tf.Variable(start, trainable=False, name=f"{prefix}/{name}")


@with_strict
class AGNOptimizer(shared.Worker, Wrapper):
    """Train a worker's own weights; every P steps push a mean gradient to shared ones.

    With P = ``communication_period``, g a gradient at the worker's weights w, a the
    accumulator of w and c the shared weights, for each variable with a gradient:

    1. ``optimizer`` applies g to w;
    2. a = a + g;
    3. local_step = local_step + 1, once a call;
    4. if local_step is a multiple of P: a = a / P; the same optimizer applies a to c,
       with slots that belong to c and powers of beta that belong to the worker; then
       global_step = global_step + 1, w = c, a = 0. The slots of w stay.

    With ``commit="delta"``, as in the paper, step 2 adds to a the change that step 1
    made to w, and step 4 is c = c + a / P. A variable whose gradient is absent in the
    call that ends a round is neither pushed nor pulled.

    ``get_init_op(task_index)`` sets w = c and a = 0 for every variable; in a graph it
    returns an operation that does so. Run it before training.

    Args:
        optimizer: a ``tf.compat.v1.train.Optimizer`` of this worker, or a wrapper.
        num_worker: the number of workers, >= 1; it changes no result.
        custom_getter: the :class:`AGNCustomGetter` that made the shared variables.
        communication_period: P: local steps between two pushes, >= 1.
        use_locking: without effect; the wrapped optimizer's own argument is used.
        name: the name that ``get_name`` returns.
        commit: ``"gradient"`` or ``"delta"``.

    Attributes:
        inner_optimizer: ``optimizer``.
        local_step: the worker's steps, an int32 variable on its CPU.
        last_step: what the last eager step did, a
            :class:`~lockstep.interface.StepReport`. Steps in graphs and inside of a
            ``tf.function`` are not reported.

    Raises:
        NotAnOptimizerError: a TypeError; ``optimizer`` is no v1 optimizer.
        GetterError: a TypeError; ``custom_getter`` is none of this backend.
        OutOfRangeError: a ValueError; a period or count below 1.
        UnknownNameError: a ValueError; an unknown ``commit``.
        UnsupportedError: a ValueError; ``optimizer`` scales losses or trains masters,
            or a ``ParameterServerStrategy``, whose variables all workers share.
        ValueError: TensorFlow's; a second instance in a variable scope of a graph.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNOptimizer``; J. Hermans, G. Spanakis,
    R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368).

    Example:
        >>> w = tf.Variable([1.0], name="w")
        >>> getter = AGNCustomGetter("/device:CPU:0")
        >>> _ = getter([w])
        >>> sgd = GradientDescentOptimizer(0.5)
        >>> worker = AGNOptimizer(sgd, 1, getter, communication_period=2)
        >>> for gradient in (1.0, 0.5):
        ...     _ = worker.apply_gradients([(tf.constant([gradient]), w)])
        ...     print(w.numpy()[0], worker.last_step.reason)
        0.5 every gradient was present; local step 1, 1 more before the push
        0.625 every gradient was present; local step 2, pushed and pulled
    """

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
        commit: str = GRADIENT,
    ) -> None:
        base.require_optimizer(optimizer, "AGNOptimizer")
        getter = custom_getter, AGNCustomGetter
        shared.check_worker(
            optimizer, num_worker, *getter, communication_period, commit
        )
        super().__init__(optimizer, name, use_locking)
        self.num_worker = num_worker
        self.custom_getter = custom_getter
        self.communication_period = communication_period
        self.use_locking = use_locking
        self.commit = commit
        self.local_step = self._make_local_step()
        if custom_getter.center.saves_itself:
            # It makes the wrappers in another process, from shared variables only.
            self._share_row_limits(list(custom_getter._global_map))
        custom_getter.center.begin(commit, optimizer)
        self._track_trackable(self.local_step, "local_step")
        self._track_trackable(custom_getter, "custom_getter")

    def _make_local_step(self) -> tf.Variable:
        """Create the count on the CPU of the worker, whatever the device around."""
        with v1.device(self.custom_getter.worker_device), v1.device("/cpu:0"):
            return make_local_step()

    def _checked(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any
    ) -> tuple[Pairs, tf.Variable | None]:
        """Raise under a parameter server, also outside of ``strategy.run``."""
        refuse_parameter_servers(self.owner)
        return super()._checked(grads_and_vars, global_step)

    def _prepared(self, pairs: Pairs) -> Pairs:
        """Raise for a variable without a center."""
        self._require_known(variable for _, variable in pairs)
        return pairs

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        if base.skips_of(self.base_optimizer):
            raise errors.UnsupportedError(
                "AGNOptimizer: expected no wrapper around it that leaves variables out "
                "in a graph, got a MultitaskOptimizerWrapper; wrap the other way round:"
                " MultitaskOptimizerWrapper inside."
            )
        present = [variable for gradient, variable in pairs if gradient is not None]
        if not tf.executing_eagerly():
            counters = [] if global_step is None else [global_step]
            base.require_resources([*present, *self._centers(present), *counters])
        self.create_slots(present)
        done = base.as_train_op(lambda: self._take_step(pairs, global_step, name))
        self.last_step = NO_EAGER_STEP
        if tf.executing_eagerly():
            self._report(pairs, self._place_in_round())
        return done

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Update, accumulate and count; at the end of a round push and pull."""
        present = [(g, v) for g, v in pairs if g is not None]
        changes, variables = map(list, zip(*present, strict=True))
        is_delta = self.commit == DELTA
        before = [
            # Reading a reference variable makes no copy.
            tf.raw_ops.DeepCopy(x=v) if base.is_reference(v) else v.read_value()
            for v in variables
            if is_delta
        ]
        with tf.control_dependencies(before):
            updated = self.apply_inside(pairs)
        if is_delta:
            with tf.control_dependencies([updated]):
                after = [variable.read_value() for variable in variables]
            changes = [a - b for a, b in zip(after, before, strict=True)]
        totals = zip(self._accumulators(variables), changes, strict=True)
        added = [a.assign_add(densify(g, a), read_value=False) for a, g in totals]
        with tf.control_dependencies([updated, *added]):
            count = tf.convert_to_tensor(self.local_step.assign_add(1))
        # A branch runs after its condition, which waits for all operations above.
        done = tf.cond(
            tf.equal(count % self.communication_period, 0),
            lambda: self._communicate(variables, global_step),
            tf.no_op,
        )
        return tf.group(done, name=name or self.get_name())

    def _communicate(
        self, variables: Sequence[tf.Variable], global_step: tf.Variable | None
    ) -> tf.Operation | None:
        """End the round of these variables, and count it."""
        self._share_row_limits(variables)
        ended = self._end_round(variables, self.inner_optimizer)
        with tf.control_dependencies([ended]):
            counted = base.advance(global_step)
        with tf.control_dependencies([counted]):
            return tf.no_op()

    def _share_row_limits(self, variables: Sequence[tf.Variable]) -> None:
        """Make row clipping inside apply these variables' limits to shared ones."""
        pairs = zip(variables, self._centers(variables), strict=True)
        share_row_limits(pairs, self.inner_optimizer)

    def _centers(self, variables: Iterable[tf.Variable]) -> list[tf.Variable]:
        return [self.custom_getter._global_map[variable] for variable in variables]

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the slots of these variables and of their shared ones now.

        In a graph a worker's slots are added to ``LOCAL_VARIABLES``.
        """
        variables = base.listed(var_list, self.owner)

        def make_local(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
            return next_creator(**{**kwargs, "collections": [LOCAL]})

        is_graph = base.builds_graph()
        with tf.variable_creator_scope(make_local) if is_graph else nullcontext():
            super().create_slots(variables)
        center = self.custom_getter.center
        if self.commit == GRADIENT and not center.saves_itself:
            with center.lock, center.lending(self.base_optimizer):
                super().create_slots(self._centers(variables))

    def make_session_run_hook(
        self, is_chief: bool, task_index: int
    ) -> v1.train.SessionRunHook:
        """Return a hook that runs the init op in each new session.

        So a restarted worker begins with the present shared weights. The arguments have
        no effect: every worker begins with the shared weights.
        """
        return BeginRound(self)

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of a worker's variable or of its shared variable.

        The shared variable and the accumulator are slots too, with this class'
        constants as names.
        """
        getter = self.custom_getter
        if name == GLOBAL_VARIABLE_NAME:
            return getter._global_map.get(var)
        if name == GRAD_VARIABLE_NAME:
            return getter._grad_map.get(var)
        slot = getter.center.slot(var, name)
        return super().get_slot(var, name) if slot is None else slot

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer and of this class."""
        return [*super().get_slot_names(), GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]

    def variables(self) -> list[tf.Variable]:
        """Return all variables of state: of the optimizer, the worker and the center.

        A ``tf.compat.v1.train.Saver`` of these and of the model saves the whole state.
        """
        getter = self.custom_getter
        own = [*getter._grad_map.values(), self.local_step]
        slots = getter.center.state().values()
        entries = [*super().variables(), *own, *getter.center.shared.values(), *slots]
        return list({variable.ref(): variable for variable in entries}.values())


class BeginRound(v1.train.SessionRunHook):
    """Runs a worker's init op in each new session."""

    def __init__(self, worker: AGNOptimizer) -> None:
        self.worker = worker

    def begin(self) -> None:
        """Build the operation before the graph is finalized."""
        self.start = self.worker.get_init_op(0)

    def after_create_session(self, session: v1.Session, coord: Any) -> None:
        """Run it."""
        session.run(self.start)


def make_local_step() -> tf.Variable:
    """Create the count of a worker's steps."""
    if not base.builds_graph():
        with tf.init_scope():
            return tf.Variable(0, False, dtype=tf.int32, name="local_step")
    # TensorFlow raises for a second worker in a variable scope.
    return v1.get_variable(
        "local_step",
        initializer=tf.constant(0, tf.int32),
        trainable=False,
        collections=[LOCAL],
    )
