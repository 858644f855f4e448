"""Accumulated gradient normalization: asynchronous workers that share weights.

The shared variables are in :mod:`lockstep.tf.agn_center`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import tensorflow as tf

from lockstep import errors, pipeline
from lockstep.checks import check_integer
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.ray.center import RayCenter, as_ray_host
from lockstep.tf.agn_center import Center, RemoteCenter
from lockstep.tf.mixed_precision import share_row_limits
from lockstep.tf.replicas import Pairs, name_of
from lockstep.tf.shared.gradients import Gradient, densify, refuse_parameter_servers
from lockstep.tf.wrapper import (
    Optimizer,
    Wrapper,
    advance,
    as_counter,
    as_train_op,
    as_variable,
    become_strict,
    builds_graph,
    check_pairs,
    is_reference,
    listed,
    require_optimizer,
    require_resources,
    skips_of,
)

v1 = tf.compat.v1

GLOBAL_VARIABLE_NAME = "global_center_variable"
GRAD_VARIABLE_NAME = "grad_variable"
GRADIENT, DELTA = COMMITS = ("gradient", "delta")

# Makes a variable, given the prefix of its name, and whether it is zero.
Make = Callable[[str, bool], tf.Variable]

LOCAL, GLOBAL = v1.GraphKeys.LOCAL_VARIABLES, v1.GraphKeys.GLOBAL_VARIABLES


class VariableMap(Mapping[tf.Variable, Any]):
    """A mapping from variables, which TensorFlow 2 does not allow in a dict."""

    def __init__(self) -> None:
        self._values: dict[Any, Any] = {}

    def __getitem__(self, key: Any) -> Any:
        return self._values[as_variable(key).ref()]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._values[as_variable(key).ref()] = value

    def __iter__(self) -> Iterator[tf.Variable]:
        return (reference.deref() for reference in self._values)

    def __len__(self) -> int:
        return len(self._values)


class AGNCustomGetter(tf.Module):
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
        strict: as in the original: until the init op has run an accumulator has the
            variable's initial value; a regularizer counts three times; reference
            variables are accepted in a cluster.

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
        strict: bool = False,
    ) -> None:
        if strict:
            become_strict(self, worker_device, center)
            return
        super().__init__()
        if host := as_ray_host(center):
            center = RemoteCenter(host)
        elif center is not None and not isinstance(center, Center):
            raise errors.GetterError(
                "AGNCustomGetter: center: expected the center of another worker's "
                f"getter, got {type(center).__name__}; pass center=getter.center."
            )
        else:
            center = Center() if center is None else center.for_worker()
        self.worker_device = worker_device
        self.center: Center = center
        self.may_add = False
        self.names: set[str] = set()
        self._global_map = VariableMap()
        self._grad_map = VariableMap()

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
        if name is None:
            return self._register(getter)
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
            shared = prefix == GLOBAL_VARIABLE_NAME
            collections = [GLOBAL if shared else LOCAL]
            options = {"trainable": False, "collections": collections}
            if zeros:
                dtype, start = own.dtype.base_dtype, tf.zeros_initializer()
                options |= {"shape": own.shape, "dtype": dtype, "initializer": start}
            options = self._options_beside(kwargs) | options
            return getter(f"{prefix}/{name}", *args, **options)

        new = unused_name(name, self.names)
        self._check({new: own})
        self._enter(new, own, make)
        return own

    def _options_beside(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a variable's options for its shared variable and its accumulator."""
        return {**kwargs, "regularizer": None}

    def _check_placement(self, own: tf.Variable, shared: tf.Variable) -> None:
        """Raise for a reference variable that is shared with another process.

        An update there may read values while another worker writes them.
        """
        if not is_reference(shared) or not shared.device:
            return
        places = [tf.DeviceSpec.from_string(v.device) for v in (own, shared)]
        here, there = [(place.job, place.task) for place in places]
        if there[0] is not None and here != there:
            raise errors.UnsupportedError(
                f"AGNCustomGetter: expected a resource variable for {name_of(own)!r}, "
                f"because {shared.device} is another process, got a reference "
                "variable; make it with use_resource=True, or call "
                "enable_resource_variables()."
            )

    def _register(self, variables: Any) -> list[Any]:
        """Register existing variables; return them."""
        found = getattr(variables, "trainable_variables", variables)
        entries = list(found) if isinstance(found, Iterable) else [found]
        pairs = [e if isinstance(e, tuple | list) else (None, e) for e in entries]
        if not all(isinstance(as_variable(p[-1]), tf.Variable) for p in pairs):
            raise errors.GetterError(
                "AGNCustomGetter: expected a model, variables or pairs (name, variable)"
                f", got {variables!r:.80}; pass what the worker trains."
            )
        if builds_graph():
            raise errors.UnsupportedError(
                "AGNCustomGetter: expected to make the variables of a graph, got "
                "variables; use it as custom_getter of a tf.compat.v1.variable_scope."
            )
        with self.center.lock, tf.init_scope():
            new = self._named(pairs)
            self._check(new)
            for name, variable in new.items():
                self._enter(name, variable, partial(make_like, name, variable))
        return [variable for _, variable in pairs]

    def _named(self, pairs: Iterable[tuple[str | None, Any]]) -> dict[str, tf.Variable]:
        """Return name -> variable of the trainable ones that are not registered yet."""
        new: dict[str, tf.Variable] = {}
        known, taken = {v.ref() for v in self._global_map}, set(self.names)
        for own_name, variable in pairs:
            inner = as_variable(variable)
            if not inner.trainable or inner.ref() in known:
                continue
            if own_name in taken:
                raise errors.UnsupportedError(
                    "AGNCustomGetter: expected one variable of each name, got another "
                    f"{own_name!r}; use other names."
                )
            default = getattr(variable, "path", name_of(inner))
            name = own_name or unused_name(default, taken)
            new[name] = inner
            known.add(inner.ref())
            taken.add(name)
        return new

    def _check(self, new: Mapping[str, tf.Variable]) -> None:
        """Raise unless all of these may join the center; none has joined yet."""
        self.may_add = self.may_add or not self.center.shared
        self.center.check(new, self.may_add)

    def _enter(self, name: str, own: tf.Variable, make: Make) -> None:
        """Register a variable by its name at the center."""
        shared = self.center.join(name, partial(make, GLOBAL_VARIABLE_NAME, False))
        self._check_placement(own, shared)
        with v1.device(self.worker_device):
            total = make(GRAD_VARIABLE_NAME, True)
        self._global_map[own] = shared
        self._grad_map[own] = total
        self._track_trackable(total, f"{GRAD_VARIABLE_NAME}/{name}")
        self.names.add(name)


def make_like(
    name: str, variable: tf.Variable, prefix: str, zeros: bool
) -> tf.Variable:
    """Create a variable with the value of another, or zeros like it."""
    value = variable.read_value()
    start = tf.zeros_like(value) if zeros else value
    return tf.Variable(start, trainable=False, name=f"{prefix}/{name}")


def unused_name(name: str, taken: Container[str]) -> str:
    """Return a name, with a number if it is taken, in the order of registration."""
    numbered = (f"{name}#{count}" for count in itertools.count(1))
    return next(n for n in itertools.chain([name], numbered) if n not in taken)


class AGNOptimizer(Wrapper):
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

    Args:
        optimizer: a ``tf.compat.v1.train.Optimizer`` of this worker, or a wrapper.
        num_worker: the number of workers, >= 1; it changes no result.
        custom_getter: the :class:`AGNCustomGetter` that made the shared variables.
        communication_period: P: local steps between two pushes, >= 1.
        use_locking: without effect; the wrapped optimizer's own argument is used.
        name: the name that ``get_name`` returns.
        commit: ``"gradient"`` or ``"delta"``.
        strict: as in the original: pairs from a one-shot iterator raise, arguments are
            not checked, ``local_step`` is on the current device, ``get_slot`` and
            ``variables()`` return nothing, row clipping inside does not clip shared
            rows.

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
            a second instance in a variable scope of a graph, or a
            ``ParameterServerStrategy``, whose variables all workers share.

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

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME
    last_step: StepReport = NO_EAGER_STEP

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
        commit: str = GRADIENT,
        strict: bool = False,
    ) -> None:
        if strict:
            arguments = optimizer, num_worker, custom_getter, communication_period
            # The original has no such argument, so its class raises for another one.
            options = {} if commit == GRADIENT else {"commit": commit}
            become_strict(self, *arguments, use_locking, name, **options)
            return
        refuse_parameter_servers("AGNOptimizer")
        require_optimizer(optimizer, "AGNOptimizer", "of this worker")
        scales = "unscale" in pipeline.stages_of(optimizer)
        if scales or pipeline.has_layer(optimizer, "AGNOptimizer"):
            raise errors.UnsupportedError(
                "AGNOptimizer: expected the optimizer that a worker trains with, got "
                f"{type(optimizer).__name__}; put a loss scale around AGNOptimizer, "
                "use float32 variables without masters, and make one AGNOptimizer for "
                "each worker."
            )
        if not isinstance(custom_getter, AGNCustomGetter):
            raise errors.GetterError(
                "AGNOptimizer: custom_getter: expected an AGNCustomGetter, got "
                f"{custom_getter!r:.80}; pass the one that has the worker's variables."
            )
        if commit not in COMMITS:
            raise errors.unknown_name("AGNOptimizer: commit", commit, COMMITS)
        check_integer("AGNOptimizer", "num_worker", num_worker)
        check_integer("AGNOptimizer", "communication_period", communication_period)
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

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Take one local step; at the end of a round, push and pull.

        Args:
            grads_and_vars: iterable of (gradient, variable). A gradient is dense or
                sparse, with its variable's shape and dtype, or None.
            global_step: integer variable, incremented at the end of a round: it counts
                the rounds of all workers that pass it.
            name: the name of the operation in a graph.

        Returns:
            In a graph the operation of the step; not useful in eager mode.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable.
            NotFromGetterError: a KeyError; a variable that the getter did not create.
            NotAVariableError: a TypeError; ``global_step`` is a tensor or a number.
            UnsupportedError: a ValueError; reference variables under control flow v2;
                in a graph, an outer wrapper that skips variables; under a
                ``ParameterServerStrategy``; strict: a one-shot iterator.
        """
        refuse_parameter_servers("AGNOptimizer")
        pairs = check_pairs(grads_and_vars, "AGNOptimizer", self.takes_wide)
        counter = as_counter(global_step, "AGNOptimizer")
        # Raise for a variable without a center before anything is created.
        self._centers([variable for _, variable in pairs])
        return self.apply_together(self._apply, pairs, counter, name)

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take a local step; by default the gradients are summed over the replicas."""
        if skips_of(self.base_optimizer):
            raise errors.UnsupportedError(
                "AGNOptimizer: expected no wrapper around it that leaves variables out "
                "in a graph, got a MultitaskOptimizerWrapper; wrap the other way round:"
                " MultitaskOptimizerWrapper inside."
            )
        present = [variable for gradient, variable in pairs if gradient is not None]
        if not tf.executing_eagerly():
            counters = [] if global_step is None else [global_step]
            require_resources([*present, *self._centers(present), *counters])
        self.create_slots(present)
        done = as_train_op(lambda: self._take_step(pairs, global_step, name))
        eager = tf.executing_eagerly()
        self.last_step = self._report(pairs) if eager else NO_EAGER_STEP
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
            tf.raw_ops.DeepCopy(x=v.read_value()) if is_reference(v) else v.read_value()
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
        """Push the means of these variables, then pull the shared ones."""
        sums = [total.read_value() for total in self._accumulators(variables)]
        # These tensors are pushed: a variable that is written meanwhile would race.
        means = [total / self.communication_period for total in sums]
        self._share_row_limits(variables)
        optimizer = None if self.commit == DELTA else self.inner_optimizer
        pairs = list(zip(means, self._centers(variables), strict=True))
        pushed = self.custom_getter.center.push(pairs, optimizer)
        with tf.control_dependencies([pushed, *means]):
            done = tf.group(advance(global_step), self._begin_round(variables))
        with tf.control_dependencies([done]):
            return tf.no_op()

    def _begin_round(self, variables: Sequence[tf.Variable]) -> tf.Operation | None:
        """Copy the shared variables to these, and reset their accumulators to 0."""
        values = self.custom_getter.center.pull(self._centers(variables))
        pairs = zip(variables, values, strict=True)
        pulls = [variable.assign(value, read_value=False) for variable, value in pairs]
        totals = self._accumulators(variables)
        resets = [a.assign(tf.zeros_like(a), read_value=False) for a in totals]
        return tf.group(*pulls, *resets)

    def _share_row_limits(self, variables: Sequence[tf.Variable]) -> None:
        """Make row clipping inside apply these variables' limits to shared ones."""
        pairs = zip(variables, self._centers(variables), strict=True)
        share_row_limits(pairs, self.inner_optimizer)

    def _centers(self, variables: Iterable[tf.Variable]) -> list[tf.Variable]:
        """Return the shared variables; raise for a variable without one."""
        known, variables = self.custom_getter._global_map, list(variables)
        for variable in variables:
            if variable not in known:
                raise errors.NotFromGetterError(
                    "AGNOptimizer: expected variables of its AGNCustomGetter, got "
                    f"{name_of(variable)!r}; call the getter with it first."
                )
        return [known[variable] for variable in variables]

    def _accumulators(self, variables: Iterable[tf.Variable]) -> list[tf.Variable]:
        return [self.custom_getter._grad_map[variable] for variable in variables]

    def _report(self, pairs: Pairs) -> StepReport:
        """Return the report of an eager step; a wrapper inside knows more of it."""
        step = int(self.local_step.read_value())
        left = -step % self.communication_period
        ending = f"{left} more before the push" if left else "pushed and pulled"
        report = getattr(self.inner_optimizer, "last_step", None)
        if report is None:
            absent = tuple(name_of(v) for g, v in pairs if g is None)
            reason = f"of {len(pairs)} gradients {len(absent)} absent"
            reason = reason if absent else "every gradient was present"
            report = StepReport(True, reason, absent)
        return report._replace(reason=f"{report.reason}; local step {step}, {ending}")

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the slots of these variables and of their shared ones now.

        In a graph a worker's slots are added to ``LOCAL_VARIABLES``.
        """
        variables = listed(var_list, self.owner)
        is_graph = builds_graph()
        with tf.variable_creator_scope(make_local) if is_graph else nullcontext():
            super().create_slots(variables)
        center = self.custom_getter.center
        if self.commit == GRADIENT and not center.saves_itself:
            with center.lock, center.lending(self.base_optimizer):
                super().create_slots(self._centers(variables))

    def get_init_op(self, task_index: int) -> tf.Operation | None:
        """Return an operation that pulls all shared variables and resets accumulators.

        Run it before training, and in a worker that joins later. In eager mode this is
        done when the call returns. ``task_index`` has no effect.

        Raises:
            NoGradientsError: a ValueError; the getter has no variables.
        """
        variables = list(self.custom_getter._global_map)
        if not variables:
            raise errors.NoGradientsError(
                "AGNOptimizer.get_init_op: expected at least one trainable variable, "
                "got none; make the variables through the AGNCustomGetter first."
            )
        return self._begin_round(variables)

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
        constants as names. Strict: None.
        """
        getter = self.custom_getter
        if name == GLOBAL_VARIABLE_NAME:
            return getter._global_map.get(var)
        if name == GRAD_VARIABLE_NAME:
            return getter._grad_map.get(var)
        shared = getter.center.slot(var, name)
        return super().get_slot(var, name) if shared is None else shared

    def get_slot_names(self) -> list[str]:
        """Return the slot names of the wrapped optimizer and of this class."""
        return [*super().get_slot_names(), GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]

    def variables(self) -> list[tf.Variable]:
        """Return all variables of state: of the optimizer, the worker and the center.

        A ``tf.compat.v1.train.Saver`` of these and of the model saves the whole state.
        Strict: an empty list.
        """
        getter = self.custom_getter
        own = [*getter._grad_map.values(), self.local_step]
        entries = [*super().variables(), *own, *getter.center.state()]
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
    if not builds_graph():
        with tf.init_scope():
            return tf.Variable(0, False, dtype=tf.int32, name="local_step")
    try:
        return v1.get_variable(
            "local_step",
            initializer=tf.constant(0, tf.int32),
            trainable=False,
            collections=[LOCAL],
        )
    except ValueError as error:
        raise errors.UnsupportedError(
            "AGNOptimizer: expected one instance in a variable scope, got a second; "
            "give each worker a graph, or a tf.compat.v1.variable_scope of its own."
        ) from error


def make_local(next_creator: Callable[..., Any], **kwargs: Any) -> Any:
    """Create a variable of a graph in ``LOCAL_VARIABLES``."""
    return next_creator(**{**kwargs, "collections": [LOCAL]})
