"""The base of all wrappers: a v1 optimizer around another one.

A ``tf.compat.v1.train.Optimizer`` updates a variable by one of its hooks, which depends
on the kind of variable (reference or resource) and of gradient (dense or sparse). A
wrapper that skips a variable in a graph puts a condition around the hooks.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from lockstep import errors
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.tf.shared.gradients import (
    Gradient,
    as_counter,
    as_gradient,
    as_pairs,
    as_variable,
    check_like,
    densify,
    extended_report,
    name_of,
    own_copy,
    require_gradients,
    require_variable,
)

T = TypeVar("T")
Optimizer = tf.compat.v1.train.Optimizer
Pairs = list[tuple[Gradient, tf.Variable]]
Skip = Callable[[Any, tf.Variable], tf.Tensor]
"""Whether the update of a variable by a gradient is skipped: bool, 0-d."""

HOOKS = (
    "_apply_dense",
    "_resource_apply_dense",
    "_apply_sparse_duplicate_indices",
    "_resource_apply_sparse_duplicate_indices",
)
SKIPS = "_lockstep_skips"
INNER = ("inner_optimizer", "_optimizer", "_opt")
"""Attributes in which wrappers keep the optimizer that they wrap."""

ABSENT, SPARSE, DENSE = range(3)

_thread = threading.local()

# -- arguments -------------------------------------------------------------------------


def listed(var_list: Any, owner: str) -> list[tf.Variable]:
    """Return the variables of a nest, or a single variable in a list."""
    variables = [as_variable(variable) for variable in tf.nest.flatten(var_list)]
    for variable in variables:
        if not isinstance(variable, tf.Variable):
            raise errors.VarListError(
                f"{owner}: var_list: expected a list of variables, got {variable!r:.80}"
                "; list those that are to be trained."
            )
    return variables


def check_pairs(
    grads_and_vars: Iterable[Any], owner: str, takes_wide: bool = False
) -> Pairs:
    """Return the pairs, checked and converted.

    ``takes_wide``: a float32 gradient may belong to a half-precision variable.
    """
    pairs: Pairs = []
    for gradient, key in as_pairs(grads_and_vars, owner):
        variable = require_variable(owner, key)
        pairs.append((as_gradient(gradient, variable, owner), variable))
    check_like(owner, pairs, takes_wide)
    require_gradients(owner, *zip(*pairs, strict=True))
    return pairs


def require_optimizer(
    optimizer: Any,
    owner: str,
    error: type[errors.NotAnOptimizerError] = errors.NotAnOptimizerError,
) -> None:
    """Raise unless ``optimizer`` is an instance of a v1 optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise error(
            f"{owner}: expected a tf.compat.v1.train.Optimizer, got {optimizer!r:.80}; "
            "pass an instance, such as lockstep.tf.AdamOptimizer(0.001), or use "
            "lockstep.keras3 for Keras' optimizers."
        )


# -- hooks and conditions --------------------------------------------------------------


def base_of(optimizer: Optimizer) -> Optimizer:
    """Return the innermost optimizer inside of our wrappers and TensorFlow's."""
    for name in INNER:
        inner = vars(optimizer).get(name)
        if isinstance(inner, Optimizer):
            return base_of(inner)
    return optimizer


def make_conditional(optimizer: Optimizer, hooks: Sequence[str], skip: Skip) -> None:
    """Make ``hooks`` do nothing if ``skip(gradient, variable)`` is true."""

    def conditional(hook: Callable[..., Any]) -> Callable[..., Any]:
        def call(gradient: Any, variable: tf.Variable, *indices: tf.Tensor) -> Any:
            return unless(
                skip(gradient, variable),
                lambda: hook(gradient, variable, *indices),
                variable,
            )

        return call

    for name in hooks:
        setattr(optimizer, name, conditional(getattr(optimizer, name)))


@contextlib.contextmanager
def routed(optimizer: Optimizer, skip: Skip) -> Iterator[None]:
    """Make the hooks of ``optimizer`` conditional within the ``with`` block."""
    own = vars(optimizer)
    replaced = {name: own[name] for name in (*HOOKS, SKIPS) if name in own}
    make_conditional(optimizer, HOOKS, skip)
    own[SKIPS] = (*skips_of(optimizer), skip)
    try:
        yield
    finally:
        for name in (*HOOKS, SKIPS):
            del own[name]
        own.update(replaced)


def skips_of(optimizer: Optimizer) -> tuple[Skip, ...]:
    """Return the tests of the :func:`routed` blocks; a true one forbids changes."""
    return vars(optimizer).get(SKIPS, ())


def unless(
    skip: tf.Tensor, update: Callable[[], Any], variable: tf.Variable
) -> tf.Operation | None:
    """Run ``update()`` unless ``skip`` is true; without a condition if it is known."""
    known = tf.get_static_value(skip)
    if known is not None:
        return tf.no_op() if known else update()
    require_resources([variable])

    def run() -> tf.Operation | None:
        with tf.control_dependencies([update()]):
            return tf.no_op()

    return tf.cond(skip, tf.no_op, run)


def set_apart(build: Callable[[], Any]) -> Callable[[], tf.Operation]:
    """Move a branch that ``build`` creates and that rarely runs into a function.

    TensorFlow visits every operation of a branch that is not taken. With conditions
    for 400 variables that is a third of an Adam step. A call of a function is a single
    operation.
    """
    if not tf.compat.v1.control_flow_v2_enabled():
        return build

    @tf.function(autograph=False, experimental_attributes={"_noinline": True})
    def done() -> tf.Tensor:
        with tf.control_dependencies([build()]):
            return tf.constant(True)

    return lambda: tf.group(done())


def is_reference(variable: tf.Variable) -> bool:
    """Whether ``variable`` is a reference variable, TensorFlow 1's default kind."""
    return variable.dtype != variable.dtype.base_dtype


def require_resources(variables: Iterable[tf.Variable]) -> None:
    """Raise for reference variables, which control flow v2 cannot capture."""
    if not tf.compat.v1.control_flow_v2_enabled():
        return
    for variable in variables:
        if is_reference(variable):
            raise errors.UnsupportedError(
                "conditional update: expected a resource variable for "
                f"{variable.op.name!r}, because control flow v2 is on, got a reference "
                "variable; make it with use_resource=True, or call "
                "tf.compat.v1.disable_control_flow_v2() before the graph is built."
            )


# -- replicas of a strategy ------------------------------------------------------------

# A v1 optimizer sums gradients in a merge_call, which is not possible inside of a
# condition. So a wrapper does it first: it creates all state and sums the gradients.
# Then every replica takes the same step on its own copy of the variables.


def replica_count() -> int:
    """Return the number of replicas, 1 outside of a strategy."""
    return int(tf.distribute.get_strategy().num_replicas_in_sync)


def refuse_cross_replica(owner: str) -> None:
    """Raise if gradients are applied outside of ``strategy.run``."""
    if tf.distribute.in_cross_replica_context():
        raise errors.CrossReplicaError(
            f"{owner}.apply_gradients: expected a replica context, got a cross-replica "
            "context; call it inside strategy.run, or use _distributed_apply."
        )


def require_mirrored(owner: str, variables: Iterable[Any]) -> None:
    """Raise for a variable that is not mirrored, if there are several replicas."""
    for variable in variables:
        is_mirrored = isinstance(variable, tf.distribute.DistributedValues)
        if not is_mirrored and replica_count() > 1:
            raise errors.UnsupportedError(
                f"{owner}: expected variables of which every replica has a copy, got "
                f"{name_of(variable)!r}, which has none; make model, optimizer and "
                "step counter inside strategy.scope()."
            )


def sums_known() -> bool:
    """Whether the gradients in this thread are already summed over the replicas."""
    return getattr(_thread, "summed", False)


def awaits_sums() -> bool:
    """Whether the caller is a replica whose gradients are not summed yet."""
    return tf.distribute.has_strategy() and not sums_known()


@contextlib.contextmanager
def summed_gradients() -> Iterator[None]:
    """Mark the gradients that are applied in the ``with`` block as summed."""
    before, _thread.summed = sums_known(), True
    try:
        yield
    finally:
        _thread.summed = before


def make_together(make: Callable[[], Any]) -> None:
    """Call ``make``, which creates variables, once for all replicas."""
    if not awaits_sums() or tf.distribute.in_cross_replica_context():
        make()
        return

    tf.distribute.get_replica_context().merge_call(lambda strategy: make())


def sums_over_replicas(pairs: Pairs) -> Pairs:
    """Return gradients summed over the replicas; absent if absent on all of them."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return pairs
    kinds = tuple(
        ABSENT if g is None else SPARSE if isinstance(g, tf.IndexedSlices) else DENSE
        for g, _ in pairs
    )

    def largest_kinds(strategy: Any, kinds: Sequence[Any]) -> tuple[int, ...]:
        # The gradients of all replicas convert to it.
        return tuple(max(strategy.experimental_local_results(kind)) for kind in kinds)

    largest = context.merge_call(largest_kinds, args=(kinds,))
    alike: dict[Any, dict[int, Any]] = {}
    for position, (pair, kind) in enumerate(zip(pairs, largest, strict=True)):
        if kind != ABSENT:
            gradient = as_kind(*pair, kind)
            group = alike.setdefault((kind, gradient.dtype), {})
            group[position] = gradient

    def add(strategy: Any, *gradients: Any) -> Any:
        # Not context.all_reduce: in a graph its custom gradient looks up variables.
        both = [(gradient, gradient) for gradient in gradients]
        return strategy.extended.batch_reduce_to(tf.distribute.ReduceOp.SUM, both)

    sums: dict[int, Any] = {}
    # One collective per dtype and kind, because a strategy concatenates dense tensors.
    for group in alike.values():
        added = context.merge_call(add, args=tuple(group.values()))
        sums.update(zip(group, added, strict=True))
    return [(sums.get(position), v) for position, (_, v) in enumerate(pairs)]


def as_kind(gradient: Gradient, variable: tf.Variable, kind: int) -> Any:
    """Convert a gradient to slices or to a dense tensor; an absent one adds nothing."""
    copy, dtype = own_copy(variable), variable.dtype.base_dtype
    if kind == DENSE:
        return densify(gradient, copy)
    if gradient is None:
        values = tf.zeros([0, *variable.shape[1:]], dtype)
        return tf.IndexedSlices(values, tf.zeros([0], tf.int64), None)
    return tf.IndexedSlices(gradient.values, tf.cast(gradient.indices, tf.int64), None)


def whole_step(done: tf.Operation | None) -> tf.Operation | None:
    """Return a graph's operation of a step on all replicas, given one replica's."""
    if tf.executing_eagerly():
        return done

    def group(strategy: Any, part: Any) -> tf.Operation | None:
        whole: tf.Operation | None = strategy.group(part)
        parts = strategy.experimental_local_results(part)
        train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
        train_ops[:] = [*(op for op in train_ops if op not in parts), whole]
        return whole

    context = tf.distribute.get_replica_context()
    return context.merge_call(group, args=(done,))


# -- steps -----------------------------------------------------------------------------


def apply_with(
    optimizer: Optimizer,
    grads_and_vars: Iterable[tuple[Any, Any]],
    global_step: tf.Variable | None = None,
    name: str | None = None,
) -> tf.Operation | None:
    """Apply pairs; do not sum gradients over replicas that are summed already."""
    summed: dict[str, Any] = {}
    if sums_known() and not isinstance(optimizer, Wrapper):
        summed["skip_gradients_aggregation"] = True
        global_step = own_copy(global_step)
    return optimizer.apply_gradients(grads_and_vars, global_step, name, **summed)


def as_train_op(build: Callable[[], tf.Operation | None]) -> tf.Operation | None:
    """Register one training op in a graph for all those that ``build`` registered."""
    if tf.executing_eagerly():
        return build()
    train_ops = tf.compat.v1.get_collection_ref(tf.compat.v1.GraphKeys.TRAIN_OP)
    before = list(train_ops)
    update = build()
    train_ops[:] = [*before, update]
    return update


def advance(global_step: tf.Variable | None) -> tf.Operation | None:
    """Add one to ``global_step``, unless it is None."""
    if global_step is None:
        return tf.no_op()
    return own_copy(global_step).assign_add(1, read_value=False)


def builds_graph() -> bool:
    """Whether a graph for a session is being built, not a ``tf.function``."""
    with tf.init_scope():
        return not tf.executing_eagerly()


# -- the wrapper -----------------------------------------------------------------------


class Wrapper(Optimizer):
    """A v1 optimizer around another one, which owns the slots and does the updates.

    Gradients, slots and names are the wrapped optimizer's, unless a wrapper defines
    them itself. Its other attributes can be read, but its methods are not forwarded.
    ``tf.train.Checkpoint`` saves its state under the name ``tracked_as``. A subclass
    overrides :meth:`_apply`, and :meth:`_prepared` if it checks or changes pairs.

    Args:
        inner_optimizer: a v1 optimizer, or a wrapper around one.
        name: the name of the wrapper; by default that of the wrapped optimizer.
        use_locking: passed to ``tf.compat.v1.train.Optimizer``.
    """

    tracked_as = "inner_optimizer"
    """The name of the wrapped optimizer in checkpoints of objects."""
    strict = False
    """Whether this is the class of ``lockstep.tf.strict``."""
    last_step: StepReport = NO_EAGER_STEP
    """The report of the last eager step."""

    def __init__(
        self,
        inner_optimizer: Optimizer,
        name: str | None = None,
        use_locking: bool = False,
    ) -> None:
        super().__init__(use_locking, name or inner_optimizer.get_name())
        self.inner_optimizer = inner_optimizer
        # v1 optimizers do not track objects that are assigned to them. Without this
        # line a checkpoint would silently leave the slots out.
        if isinstance(inner_optimizer, Optimizer):
            self._track_trackable(inner_optimizer, self.tracked_as)

    @property
    def owner(self) -> str:
        """The name in error messages."""
        return type(self).__name__

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients."""
        inner = self.inner_optimizer
        return isinstance(inner, Wrapper) and inner.takes_wide

    @property
    def base_optimizer(self) -> Optimizer:
        """The innermost optimizer, which owns the slots."""
        return base_of(self)

    # -- gradients ---------------------------------------------------------------------

    @tf.autograph.experimental.do_not_convert
    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: tf.Tensor | None = None,
    ) -> Pairs:
        """Differentiate ``loss``: a list of (gradient or None, variable).

        A wrapper that scales the loss returns unscaled gradients. The one with masters
        returns (float32 gradient, master): a sparse gradient stays sparse unless a
        regularizer adds a dense one, and float64 stays float64.

        Args:
            loss: in a graph a tensor; in any mode a callable without arguments.
            var_list: the variables; None: the graph's trainable variables, or those
                that a callable loss reads.
            gate_gradients: how much of a graph's parallelism to allow; without effect
                elsewhere.
            aggregation_method: how a graph adds up the terms of a gradient; without
                effect elsewhere.
            colocate_gradients_with_ops: place gradients with their operations in a
                graph; without effect elsewhere.
            grad_loss: the upstream gradient of ``loss``, unscaled; the default is 1.

        Raises:
            LossNotCallableError: a RuntimeError; ``loss`` is a tensor in eager mode.
            VarListError: a ValueError and TypeError; ``var_list`` lists no variables.
            DtypeError: a TypeError; masters: a regularizer's penalty is no scalar
                tensor that depends on the weight; strict: a loss or a variable in
                float16.
        """
        if tf.executing_eagerly() and not callable(loss):
            raise errors.LossNotCallableError(
                f"{self.owner}: loss: expected a callable without arguments, got "
                f"{type(loss).__name__}, because TensorFlow runs eagerly; wrap it, as "
                "in compute_gradients(lambda: loss(w), [w])."
            )
        variables = None if var_list is None else listed(var_list, self.owner)
        return self._differentiate(
            loss,
            variables,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )

    def _differentiate(self, loss: Any, *options: Any) -> Pairs:
        """Differentiate a loss; ``options``: the other arguments, in their order."""
        return self.inner_optimizer.compute_gradients(loss, *options)

    def _unscaled(self, pairs: Pairs) -> Pairs:
        """Return gradients that no wrapper here or inside divides by its scale again.

        A wrapper that builds several steps of the wrapped optimizer calls this first.
        """
        inner = self.inner_optimizer
        return inner._unscaled(pairs) if isinstance(inner, Wrapper) else pairs

    # -- steps -------------------------------------------------------------------------

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Take a step, which the class describes.

        Args:
            grads_and_vars: iterable of (gradient, variable). A gradient is dense or
                sparse, with its variable's shape and dtype, or None. It is unscaled.
                The wrapper with masters accepts the model's variables and masters.
            global_step: integer variable, incremented at every call; with a loss scale
                unless the step is skipped; with AGN at the end of a round, so it counts
                the rounds of all workers that pass it.
            name: the name of the operation in a graph; without effect elsewhere.

        Returns:
            In a graph the operation of the step; not useful in eager mode.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable, or
                ``global_step`` cannot count.
            NotFromGetterError: a KeyError; AGN: a variable that the getter did not
                create.
            UnsupportedError: a ValueError; reference variables under control flow v2;
                AGN inside a wrapper that skips variables in a graph.
            CrossReplicaError: a RuntimeError; called outside of ``strategy.run``.
            ScaleStalledError: a RuntimeError; with a loss scale, see ``at_floor``.
        """
        pairs, counter = self._checked(grads_and_vars, global_step)
        return self._apply_together(self._prepared(pairs), counter, name)

    def _checked(
        self, grads_and_vars: Iterable[tuple[Any, Any]], global_step: Any
    ) -> tuple[Pairs, tf.Variable | None]:
        """Return the arguments of a step; raise unless one can be taken here."""
        pairs = check_pairs(grads_and_vars, self.owner, self.takes_wide)
        # The originals count in any dtype.
        counter = as_counter(global_step, self.owner, any_dtype=self.strict)
        refuse_cross_replica(self.owner)
        return pairs, counter

    def _prepared(self, pairs: Pairs) -> Pairs:
        """Return the pairs of a step, before the gradients of replicas are summed."""
        return pairs

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take a step with gradients that are summed over the replicas."""
        raise NotImplementedError

    def _apply_together(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take a step; with replicas, sum the gradients over all of them first."""
        if not awaits_sums():
            return self._apply(pairs, global_step, name)
        counters = [] if global_step is None else [global_step]
        variables = [variable for _, variable in pairs]
        require_mirrored(self.owner, [*variables, *counters, *self.variables()])
        pairs = sums_over_replicas(pairs)
        touched = [variable for gradient, variable in pairs if gradient is not None]
        make_together(lambda: self.create_slots(touched))
        with summed_gradients():
            done = self._apply(pairs, global_step, name)
        return whole_step(done)

    def apply_inside(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Apply pairs with the wrapped optimizer, which never sums gradients again."""
        return apply_with(self.inner_optimizer, grads_and_vars, global_step, name)

    def _report(self, pairs: Pairs, ending: str) -> None:
        """Report an eager step: what the wrapped optimizer reported, and an ending."""
        both = zip(*pairs, strict=True)
        self.last_step = extended_report(self.inner_optimizer, *both, ending)

    # -- state -------------------------------------------------------------------------

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the slots of ``var_list`` now instead of at the first update.

        In eager mode a ``tf.compat.v1.train.Saver`` restores only variables that exist,
        so call this method before passing ``variables()`` to it.
        """
        variables = listed(var_list, self.owner)
        if isinstance(self.inner_optimizer, Wrapper):
            self.inner_optimizer.create_slots(variables)
            return
        with tf.init_scope():
            self.base_optimizer._create_slots(variables)

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return the slot ``name`` of ``var``, or None if there is none yet."""
        return self.inner_optimizer.get_slot(as_variable(var), name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots of the innermost optimizer."""
        return self.inner_optimizer.get_slot_names()

    def variables(self) -> list[tf.Variable]:
        """Return the variables of the wrapped optimizer."""
        return self.inner_optimizer.variables()

    def __repr__(self) -> str:
        inner = self.inner_optimizer
        shown = repr(inner) if isinstance(inner, Wrapper) else type(inner).__name__
        return f"{self.owner}({shown})"

    def __getattr__(self, name: str) -> Any:
        """Read an attribute of the wrapped optimizer, but forward none of its methods.

        A method that updates variables would update past the wrapper. What a wrapper
        inside defines is forwarded, and so are the names of v1 optimizers' own
        protocol, which begin with an underscore.
        """
        # TensorFlow stores the objects that a trackable tracks in attributes whose
        # names begin with _self_. The wrapped optimizer's are not the wrapper's.
        if name == "inner_optimizer" or name.startswith(("__", "_self_")):
            raise AttributeError(name)
        if isinstance(getattr(type(self), name, None), property):
            # The property itself raised, with a message for the user: raise it again.
            return object.__getattribute__(self, name)
        layer = self.inner_optimizer
        while isinstance(layer, Wrapper):
            if hasattr(type(layer), name) or name in vars(layer):
                return getattr(layer, name)
            layer = layer.inner_optimizer
        missing = f"{type(self).__name__!r} object has no attribute {name!r}"
        if not hasattr(layer, name):
            raise AttributeError(missing, name=name, obj=self)
        value = getattr(layer, name)
        if callable(value) and not name.startswith("_"):
            raise AttributeError(
                f"{missing}: expected a method of the wrapper, got one of "
                f"{type(layer).__name__}, which would update past it; call it on "
                "base_optimizer if that is what you want."
            )
        return value

    def __dir__(self) -> list[str]:
        # A checkpoint asks every tracked object for its slots if its dir() has this
        # name. The wrapped optimizer answers; a second answer would be an error.
        return [name for name in super().__dir__() if name != "get_slot_names"]


def with_strict(default: T) -> T:
    """Add the keyword ``strict`` to a class or a function.

    With ``strict=True`` a call is one of the same name in ``lockstep.tf.strict``.
    """
    name, is_class = default.__name__, isinstance(default, type)
    function = default.__init__ if is_class else default

    @tf.autograph.experimental.do_not_convert
    @functools.wraps(function)
    def call(*arguments: Any, strict: bool = False, **options: Any) -> Any:
        if not strict:
            return function(*arguments, **options)
        from lockstep.tf import strict as originals

        if not is_class:
            return getattr(originals, name)(*arguments, **options)
        own, *rest = arguments
        if type(own) is not default:
            raise errors.UnsupportedError(
                f"{type(own).__name__}: expected strict=False for a class of your own, "
                f"got True; derive it from lockstep.tf.strict.{name}."
            )
        own.__class__ = getattr(originals, name)
        return own.__init__(*rest, **options)

    keyword = inspect.Parameter(
        "strict", inspect.Parameter.KEYWORD_ONLY, default=False, annotation="bool"
    )
    signature = inspect.signature(function)
    known = [*signature.parameters.values(), keyword]
    call.__signature__ = signature.replace(parameters=known)
    if not is_class:
        call.__module__ = "lockstep.tf"
        return call
    default.__init__ = call
    return default


def old_name(attribute: str) -> Any:
    """Return a read-only property for the original's name of ``attribute``."""
    return property(lambda wrapper: getattr(wrapper, attribute))
