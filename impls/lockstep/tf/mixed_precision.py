"""Training of half-precision variables through float32 masters (v1 optimizers)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lockstep import errors
from lockstep.tf import wrapper as base
from lockstep.tf.loss_scaling import DynamicLossScale, ScalingWrapper
from lockstep.tf.shared import scaling
from lockstep.tf.shared.gradients import (
    HALF,
    MODEL,
    Gradient,
    follow,
    name_of,
    own_copy,
    saturating_cast,
    times,
    values_of,
    widen,
    with_values,
)
from lockstep.tf.shared.loss_scales import (
    AutomaticLossScaler,
    LossScale,
    scale_of,
)
from lockstep.tf.variable_clipping import VariableClippingOptimizer
from lockstep.tf.wrapper import (
    Pairs,
    as_variable,
    awaits_sums,
    builds_graph,
    is_reference,
    listed,
    make_together,
    replica_count,
)

v1 = tf.compat.v1
Optimizer = v1.train.Optimizer
Regularizer = Callable[[Any], Any]

SCOPE = "FP32-master-copy"
"""A master's name is SCOPE/NAME."""
MASTERS, REGULARIZERS = "FP32_MASTER_COPIES", "REGULARIZATION_FUNCTIONS"
"""The names of the two collections of a graph."""


@base.with_strict
class MixedPrecisionOptimizerWrapper(ScalingWrapper):
    """Train half-precision variables through float32 masters, with a scaled loss.

    ``compute_gradients``: g = (float32(d(s loss)/dw) + s d reg(m)/dm) (1/s), where s is
    the loss scale, m the master of w, and reg the regularizer of w from
    ``mp_regularizer_wrapper``; among n replicas, whose gradients are summed, each adds
    1/n of the regularizer's. ``apply_gradients``: if every gradient is finite,
    ``optimizer`` updates the masters, and w = max(min(m, L), -L) rounded, L = 65504 for
    float16. Otherwise weights, masters, slots, shared powers and ``global_step`` do not
    change. Then the scale is updated. Variables of other dtypes are their own masters.
    If w changes between steps, by loading a checkpoint for example, m is updated from
    it.

    Args:
        optimizer: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one. Row
            clipping goes inside, with the model's variables as keys.
        loss_scale: a number > 0, None for 1, ``dynamic``, an ``AutomaticLossScaler`` or
            a loss scale.
        clip_norm, at_floor, floor_patience: as in
            :class:`~lockstep.tf.MixedPrecisionLossScaleOptimizer`. A number never
            changes, so it is always at its floor.

    Attributes:
        inner_optimizer: ``optimizer``; its slots belong to the masters.
        scale_object: the scale: a float, or an object.
        last_step: what the last eager step did, a
            :class:`~lockstep.scalers.ScaledStepReport`. Steps in graphs and inside of a
            ``tf.function`` are not reported.
        skipped_steps, skipped_in_a_row: all skipped steps, and those since the last
            step that was not skipped: int64 tensors, saved.

    Raises:
        NotScalableError: a ValueError and TypeError; ``optimizer`` is no v1 optimizer.
        UnknownNameError, OutOfRangeError: a ValueError; see the arguments.
        UnsupportedError: a ValueError; ``optimizer`` shares variables by AGN, or
            scales the loss itself.

    Origin: OpenSeq2Seq, ``MixedPrecisionOptimizerWrapper``; P. Micikevicius et al.,
    "Mixed Precision Training".

    Example:
        >>> w = tf.Variable([1.0, 2.0], dtype=tf.float16)
        >>> opt = MixedPrecisionOptimizerWrapper(GradientDescentOptimizer(2**-12), 8.0)
        >>> for _ in range(3):
        ...     _ = opt.minimize(lambda: tf.reduce_sum(w), var_list=[w])
        >>> w.numpy().tolist(), opt.master(w).numpy().tolist()
        ([0.9990234375, 1.9990234375], [0.999267578125, 1.999267578125])
    """

    def __init__(
        self,
        optimizer: Optimizer,
        loss_scale: float | str | AutomaticLossScaler | LossScale | None = None,
        *,
        clip_norm: float | None = None,
        at_floor: str = "warn",
        floor_patience: int = scaling.PATIENCE,
    ) -> None:
        base.require_optimizer(optimizer, self.owner, errors.NotScalableError)
        self._wrap(optimizer, *scale_of(loss_scale, DynamicLossScale))
        self._set_options(clip_norm, at_floor, floor_patience)

    def _wrap(self, optimizer: Optimizer, scale_object: Any, scale: Any) -> None:
        name = f"{optimizer.get_name()}-MP"
        super().__init__(optimizer, name, scale_object, scale)
        self._masters: dict[Any, tf.Variable] = {}
        self._master_names: set[str] = set()

    @property
    def _factor(self) -> float | tf.Tensor:
        """The current factor of a loss: a float if the scale is a number."""
        if not isinstance(self.scale_object, float):
            return self.loss_scale
        self._never_scaled = False
        return self.scale_object

    # -- masters -----------------------------------------------------------------------

    @property
    def masters(self) -> list[tf.Variable]:
        """The masters that exist, in the order of their creation."""
        return list(self._masters.values())

    def master(self, variable: Any) -> tf.Variable:
        """Return the variable that is updated: the master of ``variable``, or itself.

        A missing master is created with the value of ``variable``.
        """
        variable = as_variable(variable)
        if variable.ref() not in self._masters:
            self._make_masters([variable])
        return self._master_of(variable)

    def trains_master(self, variable: tf.Variable) -> bool:
        """Whether a variable is trained through a master of its own."""
        return variable.dtype.base_dtype in HALF

    def _master_of(self, variable: tf.Variable) -> tf.Variable:
        """Return the master of ``variable``, or itself if it has none."""
        return self._masters.get(variable.ref(), variable)

    def _make_masters(self, variables: Iterable[tf.Variable]) -> None:
        """Create the missing masters, once for all replicas."""
        missing = {
            variable.ref(): variable
            for variable in variables
            if variable.ref() not in self._masters and self.trains_master(variable)
        }
        if missing:
            make_together(lambda: self._make_copies([*missing.values()]))

    def _make_copies(self, variables: list[tf.Variable]) -> None:
        """Create masters, saved as SCOPE/NAME; row clipping inside clips them."""
        with tf.init_scope(), v1.name_scope(SCOPE):
            pairs = [(variable, float32_copy(variable)) for variable in variables]
        for variable, master in pairs:
            self._masters[variable.ref()] = master
            name = stem = f"{SCOPE}/{name_of(variable)}"
            count = 0
            while name in self._master_names:
                count += 1
                name = f"{stem}_{count}"
            self._master_names.add(name)
            self._track_trackable(master, name)
        if not self.strict:
            share_row_limits(pairs, self.inner_optimizer)

    def _follow(
        self, variable: tf.Variable, master: tf.Variable
    ) -> list[tf.Operation | None]:
        """Return what updates a master from a variable that was changed outside."""
        values = follow(master.read_value(), variable.read_value())
        done = master.assign(values, read_value=False)
        return [] if done is None else [done]

    def _round(self, master: tf.Variable) -> tf.Operation | None:
        """Round the value of a master into its variable."""
        variable = getattr(master, MODEL, None)
        if variable is None:
            return None
        values = saturating_cast(master.read_value(), variable.dtype.base_dtype)
        return own_copy(variable).assign(values, read_value=False)

    # -- gradients ---------------------------------------------------------------------

    def _regularized(self, pairs: Pairs, factor: float | tf.Tensor) -> Pairs:
        """Return (float32 gradient + factor d regularizer(master), master)."""
        self._make_masters([variable for _, variable in pairs])
        with tf.init_scope():
            entries = v1.get_collection(REGULARIZERS)
        known = {variable.ref(): regularizer for variable, regularizer in entries}
        return [
            self._at_master(gradient, variable, factor, known.get(variable.ref()))
            for gradient, variable in pairs
        ]

    def _at_master(
        self,
        gradient: Gradient,
        variable: tf.Variable,
        factor: float | tf.Tensor = 1.0,
        regularizer: Regularizer | None = None,
    ) -> tuple[Gradient, tf.Variable]:
        """Return (float32 gradient + factor d regularizer(master), master)."""
        master = self._master_of(variable)
        if master is variable or (gradient is None and regularizer is None):
            return gradient, master
        with tf.control_dependencies(self._follow(variable, master)):
            wide = None if gradient is None else widened(gradient)
            slope = None
            if regularizer is not None:
                weight = master.read_value()
                slope = scaling.penalty_gradient(regularizer, weight)
            if slope is None:
                return wide, master
            if awaits_sums() and not tf.distribute.in_cross_replica_context():
                factor = factor / replica_count()  # All replicas add the same slope.
            slope = times(slope, factor)
            dense = slope if wide is None else tf.convert_to_tensor(wide) + slope
            return dense, master

    # -- steps -------------------------------------------------------------------------

    def _prepared(self, pairs: Pairs) -> Pairs:
        """Return unscaled float32 gradients, with the masters."""
        of_masters: Pairs = []
        for gradient, variable in self._unscaled(pairs):
            # One at a time, so each gets its own scope in checkpoints of graphs.
            self._make_masters([variable])
            of_masters.append(self._at_master(gradient, variable))
        return of_masters

    def _look(self, step: scaling.ScaledStep) -> None:
        """Check the gradients of a step, also for an automatic scaler."""
        super()._look(step)
        if isinstance(self.scale_object, AutomaticLossScaler):
            step.look_at_largest(step.pairs, self.scale_object.check_grads)

    def _take_step(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Update the masters with the wrapped optimizer; round them into the model."""
        done = self.apply_inside(pairs, global_step, name)
        # The update must write the masters before they are copied into the model.
        with tf.control_dependencies([done]):
            copies = [self._round(v) for g, v in pairs if g is not None]
        return tf.group(done, *[copy for copy in copies if copy is not None])

    # -- state -------------------------------------------------------------------------

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the masters of ``var_list``, and their slots, now."""
        variables = listed(var_list, self.owner)
        super().create_slots([self.master(variable) for variable in variables])

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of the master of ``var``, or None if there is none yet."""
        return super().get_slot(self._master_of(as_variable(var)), name)

    def variables(self) -> list[tf.Variable]:
        """Return the state: masters, wrapped optimizer, scale and count of skips.

        A ``tf.compat.v1.train.Saver`` of these and of the model saves the whole state.
        """
        return [*self.masters, *super().variables()]


def float32_copy(variable: tf.Variable) -> tf.Variable:
    """Create a float32 variable with the value of ``variable``, or its initial one."""
    if tf.executing_eagerly():
        value = variable.read_value()
    else:
        base.require_resources([variable])
        value = tf.cond(
            v1.is_variable_initialized(variable),
            variable.read_value,
            lambda: variable.initial_value,
        )
    master = v1.Variable(
        tf.cast(value, tf.float32),
        trainable=False,
        name=name_of(variable),
        collections=[v1.GraphKeys.GLOBAL_VARIABLES, MASTERS],
        use_resource=not is_reference(variable),
    )
    setattr(master, MODEL, variable)
    return master


def widened(gradient: Any) -> Any:
    """Return a gradient in float32: a new tensor, which runs after dependencies."""
    if gradient.dtype != tf.float32 or not builds_graph():
        return widen(gradient)
    return with_values(gradient, tf.identity(values_of(gradient)))


def share_row_limits(masters: Iterable[tuple[Any, Any]], inner: Optimizer) -> None:
    """Make row clipping inside clip the masters of (variable, master) pairs."""
    masters = list(masters)
    while isinstance(inner, base.Wrapper):
        if isinstance(inner, VariableClippingOptimizer):
            rows = inner.rows
            pairs = [(v.ref(), m.ref()) for v, m in masters if v.ref() in rows]
            rows.update({master: rows[variable] for variable, master in pairs})
        inner = inner.inner_optimizer


# -- regularizers ----------------------------------------------------------------------


@base.with_strict
def mp_regularizer_wrapper(regularizer: Regularizer) -> Regularizer:
    """Leave the regularization of half-precision weights to the optimizer.

    ``MixedPrecisionOptimizerWrapper`` adds d regularizer(master)/d master to the
    gradient of the master, because in half precision a gradient such as 1e-4 w would
    underflow.

    float32 weight w: returns regularizer(w). float16 or bfloat16 variable: returns
    None, so the loss has no such term. The pair (w, regularizer) is added to the
    collection REGULARIZATION_FUNCTIONS of the graph; the last one of a weight counts.
    In eager mode that is TensorFlow's default graph, which
    ``tf.compat.v1.reset_default_graph`` clears.

    Args:
        regularizer: weight -> penalty, 0-d, or None.

    Origin: OpenSeq2Seq, ``mp_regularizer_wrapper``.

    Example:
        >>> half = tf.Variable([1.0, 2.0], dtype=tf.float16)
        >>> regularizer = mp_regularizer_wrapper(tf.nn.l2_loss)
        >>> regularizer(half) is None, float(regularizer(tf.constant([1.0, 2.0])))
        (True, 2.5)
    """

    @tf.autograph.experimental.do_not_convert
    def regularize(weights: Any) -> Any:
        variable = as_variable(weights)
        is_variable = isinstance(variable, tf.Variable)
        if not is_variable or variable.dtype.base_dtype not in HALF:
            return regularizer(weights)
        with tf.init_scope():
            entries = v1.get_collection_ref(REGULARIZERS)
            others = [entry for entry in entries if entry[0] is not variable]
            entries[:] = [*others, (variable, regularizer)]
        return None

    return regularize
