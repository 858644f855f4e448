"""The row-clipping wrapper, for v1-style optimizers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.errors import warn_user
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.messages import tf as tf_host
from lockstep.messages.base.pairs import refuse_complex
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.clipping import variable_clipping as words
from lockstep.messages.nouns import TF
from lockstep.messages.workers.agn import refuse_row_clipping_around
from lockstep.quirks import quirks_of
from lockstep.tf.clipping.row_arguments import (
    axes_by_variable,
    check_max_norm,
    limits_by_variable,
    refuse_masters,
    resolved,
)
from lockstep.tf.replicas import Pairs, name_of, refuse_cross_replica
from lockstep.tf.shared.clipping.clip_rows import clip_rows, excess
from lockstep.tf.shared.gradients import Gradient, own_copy
from lockstep.tf.wrapper import (
    Optimizer,
    Wrapper,
    as_counter,
    as_train_op,
    check_pairs,
    is_keras,
    is_reference,
    skips_of,
    unless,
)

__all__ = ["VariableClippingOptimizer"]

DELEGATED = ("compute_gradients", "apply_gradients", "get_slot", "get_slot_names")
"""The methods of the wrapped optimizer that the original called."""

Axes = words.Axes


@documented
class VariableClippingOptimizer(Wrapper):
    """...

    Keys of ``vars_to_clip_dims`` are variables or, if these are not hashable (eager
    ones), their ``ref()``. Under ``strict``, ``opt`` may be any object with the methods
    that are called.

    Args:
        opt: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one.
        max_norm: the largest norm that is not clipped, > 0 and finite: a number, or a
            0-d tensor or variable, whose value is checked in eager mode. Except under
            strict, also a mapping from the keys of ``vars_to_clip_dims`` to numbers.
        use_locking: lock the variable while it is clipped; reference variables only.
        colocate_clip_ops_with_vars: compute norms on the device of the variable.
        name: the result of ``get_name``, and the name scope in a graph.

    Origin: ``tf.contrib.opt.VariableClippingOptimizer``, TensorFlow 1.15. The default
    mode differs as listed under ``strict``, and ``variables()`` returns the wrapped
    optimizer's.

    Example:
        >>> w = tf.Variable([[3.0, 4.0], [0.25, 0.5]])
        >>> opt = GradientDescentOptimizer(1.0)
        >>> opt = VariableClippingOptimizer(opt, {w.ref(): [1]}, max_norm=2.5)
        >>> _ = opt.apply_gradients([(tf.zeros([2, 2]), w)])
        >>> w.numpy().tolist()
        [[1.5, 2.0], [0.25, 0.5]]
    """

    owner = words.WRAPPER

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float | tf.Tensor | Mapping[Any, float],
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
        strict: bool = False,
    ) -> None:
        quirks = quirks_of(strict)
        refuse_others(opt, quirks.arguments_unchecked)
        words.check_name(name)
        axes = axes_by_variable(vars_to_clip_dims, resolve=not quirks.row_clip_axes)
        limits = limits_by_variable(max_norm, axes, quirks.row_clip_range)
        self.axes_by_variable = {v: Axes.of(a, limits[v]) for v, a in axes.items()}
        if not quirks.arguments_unchecked:
            refuse_row_clipping_around(opt)
            refuse_masters(opt, vars_to_clip_dims)
        super().__init__(opt, name, use_locking)
        self.max_norm = max_norm
        self.use_locking = use_locking
        self.colocate = colocate_clip_ops_with_vars
        self.strict = strict
        self.last_step: StepReport = NO_EAGER_STEP

    @documented
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Let ``opt`` update the variables, then clip their rows.

        Args:
            global_step: integer variable, passed to the wrapped optimizer.

        Returns:
            In a graph the operation of update and clipping; not useful in eager mode.

        Raises:
            ...
            DtypeError: ``global_step`` cannot count.
            OutOfRangeError: strict: an axis that a variable does not have.
        """
        quirks = self._quirks
        used_up = quirks.row_clip_iterator and isinstance(grads_and_vars, Iterator)
        pairs = check_pairs(grads_and_vars, words.WRAPPER, self.takes_wide)
        if isinstance(self.max_norm, tf.Variable) and not quirks.row_clip_range:
            check_max_norm(self.max_norm)
        unchecked = quirks.arguments_unchecked
        global_step = as_counter(global_step, words.WRAPPER, unchecked)
        if not self.strict:
            return self.apply_together(self._apply, pairs, global_step, name)
        # As in the original, the wrapped optimizer sums gradients over the replicas.
        refuse_cross_replica(words.WRAPPER)
        return self._apply(pairs, global_step, name, used_up)

    def _apply(
        self,
        pairs: Pairs,
        global_step: tf.Variable | None,
        name: str | None,
        used_up: bool = False,
    ) -> tf.Operation | None:
        """Take a step; by default the gradients are summed over the replicas."""
        listed = [] if used_up else self.listed(pairs)
        entries = iter(pairs) if used_up else pairs
        too_large: list[tf.Tensor] = []

        def update_and_clip() -> tf.Operation | None:
            with tf.compat.v1.name_scope(name, self.get_name()) as scope:
                update = self.apply_inside(entries, global_step)
                # The update must write a row before the row is read.
                with tf.control_dependencies([update]):
                    clips = [self.clip(*pair, too_large) for pair in listed]
                return tf.group(update, *clips, name=scope)

        done = as_train_op(update_and_clip)
        eager = tf.executing_eagerly()
        self.last_step = self.report(pairs, too_large) if eager else NO_EAGER_STEP
        return done

    def listed(self, pairs: Pairs) -> Pairs:
        """Return the pairs that have a gradient, and axes for their variable."""
        axes_of = self.axes_by_variable
        listed = [(g, v) for g, v in pairs if g is not None and v.ref() in axes_of]
        for _, variable in listed:
            resolved(variable, axes_of[variable.ref()])
            if self._quirks.row_clip_range:
                kind = self.max_norm.dtype.name if tf.is_tensor(self.max_norm) else None
                expected = variable.dtype.base_dtype.name
                words.check_norm_kind(self.max_norm, kind, expected)
        if not self.strict:
            refuse_complex(words.WRAPPER, [g.dtype.name for g, _ in listed])
        return listed

    def clip(
        self, gradient: Gradient, variable: tf.Variable, too_large: list[tf.Tensor]
    ) -> tf.Operation | None:
        """Clip ``variable``, unless an outer wrapper skips it in this step."""
        axes = self.axes_by_variable[variable.ref()]
        indices = None
        if isinstance(gradient, tf.IndexedSlices):
            indices = gradient.indices
        if indices is not None and 0 in axes:
            # Unresolved axes may be negative; like the original, look for 0 only.
            warn_user(words.whole_variable(name_of(variable), axes))
            indices = None
        clip: Callable[[], tf.Operation | None]
        clip = functools.partial(self.clip_now, variable, indices, axes, too_large)
        for skip in skips_of(self.base_optimizer):
            clip = functools.partial(unless, skip(gradient, variable), clip, variable)
        return clip()

    def clip_now(
        self,
        variable: tf.Variable,
        indices: tf.Tensor | None,
        axes: Axes,
        too_large: list[tf.Tensor],
    ) -> tf.Operation | None:
        """Clip a variable or its rows [k]; in eager mode record the norms' flags.

        With ``row_clip_duplicates`` a row that occurs k times is corrected k times.
        """
        variable, quirks = own_copy(variable), self._quirks
        subtracts = quirks.row_clip_subtracted
        if indices is not None and not quirks.row_clip_duplicates:
            indices, _ = tf.unique(indices)
        with tf.device(variable.device) if self.colocate else contextlib.nullcontext():
            values = read_rows(variable, indices)
            if tf.executing_eagerly() or not subtracts:
                clipped, flags = clip_rows(values, axes, axes.max_norm)
                too_large.append(flags)
            if subtracts:
                clipped = excess(values, axes, axes.max_norm, quirks)
        write = subtract_rows if subtracts else write_rows
        return write(variable, indices, clipped, self.use_locking)

    def report(self, pairs: Pairs, too_large: Sequence[tf.Tensor]) -> StepReport:
        """Return the report of an eager step."""
        flags = [np.asarray(tensor) for tensor in too_large]
        return words.report(
            getattr(self.inner_optimizer, "last_step", None),
            [name_of(variable) for _, variable in pairs],
            [gradient is None for gradient, _ in pairs],
            sum(flag.size for flag in flags),
            sum(int(flag.sum()) for flag in flags),
        )

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the slots of ``var_list`` now, with the names of the first update."""
        with tf.compat.v1.name_scope(self.get_name()):
            super().create_slots(var_list)

    def variables(self) -> list[tf.Variable]:
        """Return the variables of the wrapped optimizer; the wrapper itself has none.

        Strict: an empty list.
        """
        return [] if self._quirks.row_clip_variables else super().variables()


def refuse_others(opt: Any, unchecked: bool) -> None:
    """Raise unless ``opt`` can be wrapped; ``unchecked``: unless it has the methods."""
    if is_keras(opt):
        raise tf_host.KERAS_OPTIMIZER.error(owner=words.WRAPPER, got=type(opt).__name__)
    fine = isinstance(opt, Optimizer)
    if unchecked and not isinstance(opt, type):
        fine = all(hasattr(opt, method) for method in DELEGATED)
    if not fine:
        raise not_an_optimizer(words.WRAPPER, opt, TF)


def read_rows(variable: tf.Variable, indices: tf.Tensor | None) -> tf.Tensor:
    """Return the value of ``variable``, or its rows [k], without other copies."""
    if indices is None:
        return variable.read_value()
    if is_reference(variable):
        return tf.gather(variable.read_value(), indices)
    return variable.sparse_read(indices)


def write_rows(
    variable: tf.Variable,
    indices: tf.Tensor | None,
    values: tf.Tensor,
    use_locking: bool,
) -> tf.Operation | None:
    """Assign ``values`` to a variable, or to its rows; ``indices`` are distinct."""
    if indices is None:
        return variable.assign(values, use_locking=use_locking, read_value=False)
    if is_reference(variable):
        rows = tf.IndexedSlices(values, indices)
        return variable.scatter_update(rows, use_locking=use_locking).op
    # The variable's own method would read the whole variable afterwards.
    return tf.raw_ops.ResourceScatterUpdate(
        resource=variable.handle, indices=indices, updates=values
    )


def subtract_rows(
    variable: tf.Variable,
    indices: tf.Tensor | None,
    values: tf.Tensor,
    use_locking: bool,
) -> tf.Operation | None:
    """Subtract ``values`` from a variable or from its rows; ``indices`` may repeat."""
    if indices is None:
        return variable.assign_sub(values, use_locking=use_locking, read_value=False)
    if is_reference(variable):
        rows = tf.IndexedSlices(values, indices)
        return variable.scatter_sub(rows, use_locking=use_locking).op
    return tf.raw_ops.ResourceScatterSub(
        resource=variable.handle, indices=indices, updates=values
    )
