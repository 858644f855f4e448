"""The row-clipping wrapper, for v1-style optimizers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lockstep import errors
from lockstep.interface import NO_EAGER_STEP
from lockstep.pipeline import layers_of
from lockstep.tf import wrapper as base
from lockstep.tf.shared import variable_clipping as shared
from lockstep.tf.shared.gradients import Gradient, name_of, own_copy, require_floats
from lockstep.tf.wrapper import Optimizer, Pairs, Wrapper

OWNER, DIMS = shared.OWNER, shared.DIMS


class RowLimit(NamedTuple):
    """The axes of one variable, and the largest norm over them."""

    axes: tuple[int, ...]
    max_norm: Any


@base.with_strict
class VariableClippingOptimizer(Wrapper):
    """After each update, hold the norm of a variable's rows to a limit.

    For each variable w that is listed and has a gradient: after ``opt`` has updated it,
    n = sqrt(sum over its axes of w^2), and where n > max_norm, w = w max_norm / n. Rows
    with a norm up to max_norm keep their bits. After a sparse gradient, only its rows
    are read and written, even if ``opt`` updates others, unless the norm is over axis
    0. Half precision is clipped in float32.

    Args:
        opt: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one.
        vars_to_clip_dims: variable -> list or tuple of axes over which the norm is
            computed: [1] for the rows of a matrix, [] for its elements. Keys are
            variables or, if these are not hashable (eager ones), their ``ref()``. A
            variable that is not listed is never clipped.
        max_norm: the largest norm that is not clipped, > 0 and finite: a number, or a
            0-d tensor or variable, which is not checked; or a mapping from the keys of
            ``vars_to_clip_dims`` to such norms.
        use_locking: lock the variable while it is clipped; reference variables only.
        colocate_clip_ops_with_vars: compute norms on the device of the variable.
        name: the result of ``get_name``, and the name scope in a graph.

    Attributes:
        inner_optimizer: ``opt``.
        last_step: what the last eager step did, a
            :class:`~lockstep.interface.StepReport`.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no v1 optimizer.
        AxesError: a TypeError; the axes of a variable are no list of integers.
        OutOfRangeError: a ValueError; ``max_norm``, an empty name, an axis that a
            variable does not have.
        UnknownNameError: a ValueError; the two mappings have different keys.

    Cost: one read and one write of the gradient's rows. A norm over axis 0 reads the
    whole variable; with a sparse gradient this causes a warning.

    Origin: ``tf.contrib.opt.VariableClippingOptimizer``, TensorFlow 1.15. It
    differs as ``lockstep.tf.strict`` lists.

    Example:
        >>> w = tf.Variable([[3.0, 4.0], [0.25, 0.5]])
        >>> opt = GradientDescentOptimizer(1.0)
        >>> opt = VariableClippingOptimizer(opt, {w.ref(): [1]}, max_norm=2.5)
        >>> _ = opt.apply_gradients([(tf.zeros([2, 2]), w)])
        >>> w.numpy().tolist()
        [[1.5, 2.0], [0.25, 0.5]]
        >>> opt.last_step.reason
        'every gradient was present; 1 of 2 rows clipped'
    """

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float | tf.Tensor | Mapping[Any, float],
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        base.require_optimizer(opt, self.owner)
        shared.check_arguments(opt, vars_to_clip_dims, name)
        axes_of = listed_axes(vars_to_clip_dims)
        for reference, axes in axes_of.items():
            variable = reference.deref()
            if variable.shape.rank is not None:
                rank = variable.shape.rank
                axes_of[reference] = shared.resolved_axes(name_of(variable), rank, axes)
        limits = shared.limits_of(max_norm, axes_of, reference_of, True)
        for layer in layers_of(opt):
            trains_master = getattr(type(layer), "trains_master", None)
            for variable in [reference.deref() for reference in axes_of]:
                if trains_master is not None and trains_master(layer, variable):
                    shared.refuse_master(variable)
        super().__init__(opt, name, use_locking)
        self.max_norm = max_norm
        self.use_locking, self.colocate = use_locking, colocate_clip_ops_with_vars
        self.rows = {ref: RowLimit(axes_of[ref], limits[ref]) for ref in axes_of}

    def _prepared(self, pairs: Pairs) -> Pairs:
        require_floats(OWNER, [g for g, _ in self._listed(pairs)])
        return pairs

    def _listed(self, pairs: Pairs) -> Pairs:
        """Return the pairs that have a gradient, and a limit for their variable."""
        return [(g, v) for g, v in pairs if g is not None and v.ref() in self.rows]

    def _apply(
        self,
        pairs: Pairs,
        global_step: tf.Variable | None,
        name: str | None,
        listed: Pairs | None = None,
    ) -> tf.Operation | None:
        """Update, then clip the listed variables."""
        listed = self._listed(pairs) if listed is None else listed
        too_large: list[tf.Tensor] = []

        def update_and_clip() -> tf.Operation | None:
            with tf.compat.v1.name_scope(name, self.get_name()) as scope:
                update = self.apply_inside(pairs, global_step)
                # The update must write a row before the row is read.
                with tf.control_dependencies([update]):
                    clips = [self._clip(*pair, too_large) for pair in listed]
                return tf.group(update, *clips, name=scope)

        done = base.as_train_op(update_and_clip)
        self.last_step = NO_EAGER_STEP
        if tf.executing_eagerly():
            flags = [np.asarray(tensor) for tensor in too_large]
            count = sum(int(flag.sum()) for flag in flags)
            size = sum(flag.size for flag in flags)
            self._report(pairs, f"{count} of {size} rows clipped")
        return done

    def _clip(
        self, gradient: Gradient, variable: tf.Variable, too_large: list[tf.Tensor]
    ) -> tf.Operation | None:
        """Clip ``variable``, unless an outer wrapper skips it in this step."""
        limit, indices = self.rows[variable.ref()], getattr(gradient, "indices", None)
        if indices is not None and 0 in limit.axes:
            shared.warn_of_whole(variable, limit.axes)
            indices = None
        clip = partial(self._clip_now, variable, indices, limit, too_large)
        for skip in base.skips_of(self.base_optimizer):
            clip = partial(base.unless, skip(gradient, variable), clip, variable)
        place = own_copy(variable).device if self.colocate else None
        with tf.device(place) if place else contextlib.nullcontext():
            return clip()

    def _clip_now(
        self,
        variable: tf.Variable,
        indices: tf.Tensor | None,
        limit: RowLimit,
        too_large: list[tf.Tensor],
    ) -> tf.Operation | None:
        """Clip a variable or its rows [k]; append a mask of the norms too large."""
        variable, locking = own_copy(variable), self.use_locking
        if indices is not None:
            indices, _ = tf.unique(indices)
        values, flags = shared.clip_rows(read_rows(variable, indices), *limit)
        too_large.append(flags)
        if indices is None:
            return variable.assign(values, use_locking=locking, read_value=False)
        if base.is_reference(variable):
            rows = tf.IndexedSlices(values, indices)
            return variable.scatter_update(rows, use_locking=locking).op
        # The variable's own method would read the whole variable afterwards.
        return tf.raw_ops.ResourceScatterUpdate(
            resource=variable.handle, indices=indices, updates=values
        )

    def create_slots(self, var_list: Iterable[Any]) -> None:
        """Create the slots of ``var_list`` now, with the names of the first update."""
        with tf.compat.v1.name_scope(self.get_name()):
            super().create_slots(var_list)


def read_rows(variable: tf.Variable, indices: tf.Tensor | None) -> tf.Tensor:
    """Return the value of ``variable``, or its rows [k], without other copies."""
    if indices is None:
        return variable.read_value()
    if base.is_reference(variable):
        return tf.gather(variable.read_value(), indices)
    return variable.sparse_read(indices)


def listed_axes(vars_to_clip_dims: Mapping[Any, Any]) -> dict[Any, tuple[int, ...]]:
    """Return ``variable.ref()`` -> axes, copied and checked, but not resolved."""
    axes_of: dict[Any, tuple[int, ...]] = {}
    for key, dims in vars_to_clip_dims.items():
        variable = base.as_variable(key)
        if not isinstance(variable, tf.Variable):
            raise errors.AxesError(
                f"{DIMS}: expected variables, or their ref(), as keys, got "
                f"{type(key).__name__}; use variable.ref()."
            )
        if variable.ref() in axes_of:
            raise errors.UnsupportedError(
                f"{DIMS}: expected each variable once, got {name_of(variable)!r} "
                "twice; list it once, with all of its axes."
            )
        axes_of[variable.ref()] = shared.checked_axes(name_of(variable), dims)
    return axes_of


def reference_of(key: Any) -> Any:
    """Return the ``ref()`` of a variable; return other objects unchanged."""
    variable = base.as_variable(key)
    return variable.ref() if isinstance(variable, tf.Variable) else key
