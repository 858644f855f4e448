"""The row-clipping wrapper, for v1-style optimizers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from lockstep import errors
from lockstep.checks import is_positive, number_of
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.pipeline import has_layer, layers_of
from lockstep.tf import wrapper as base
from lockstep.tf.replicas import Pairs, name_of
from lockstep.tf.shared.clipping import (
    DIMS,
    checked_axes,
    clip_rows,
    resolved_axes,
)
from lockstep.tf.shared.gradients import Gradient, own_copy, require_floats
from lockstep.tf.wrapper import Optimizer, Wrapper

OWNER = "VariableClippingOptimizer"


class RowLimit(NamedTuple):
    """The axes of one variable, and the largest norm over them."""

    axes: tuple[int, ...]
    max_norm: Any


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
            0-d tensor or variable, whose value is checked in eager mode; or a mapping
            from the keys of ``vars_to_clip_dims`` to such norms.
        use_locking: lock the variable while it is clipped; reference variables only.
        colocate_clip_ops_with_vars: compute norms on the device of the variable.
        name: the result of ``get_name``, and the name scope in a graph.
        strict: reproduce ``tf.contrib.opt.VariableClippingOptimizer`` (1.15) with its
            quirks: rows below the norm change by rounding, a row listed k times is
            corrected k times, a negative axis for dimension 0 covers only the listed
            rows, float16 squares overflow, pairs from a one-shot iterator are not
            clipped, ``max_norm`` is not checked, and ``variables()`` is empty.

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

    Origin: ``tf.contrib.opt.VariableClippingOptimizer``, TensorFlow 1.15. The default
    differs as listed under ``strict``, and ``variables()`` returns the wrapped
    optimizer's.

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

    owner = OWNER
    strict = False
    last_step: StepReport = NO_EAGER_STEP

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
        options = use_locking, colocate_clip_ops_with_vars, name
        if strict:
            base.become_strict(self, opt, vars_to_clip_dims, max_norm, *options)
            return
        base.require_optimizer(opt, OWNER, "whose steps come first")
        axes_of = listed_axes(vars_to_clip_dims)
        for variable, axes in axes_of.items():
            listed, rank = variable.deref(), variable.deref().shape.rank
            if rank is not None:
                axes_of[variable] = resolved_axes(name_of(listed), rank, axes)
        limits = limits_of(max_norm, axes_of)
        refuse_layers(opt, axes_of)
        self._set_up(opt, axes_of, limits, *options)
        self.max_norm = max_norm

    def _set_up(
        self,
        opt: Any,
        axes_of: Mapping[Any, tuple[int, ...]],
        limits: Mapping[Any, Any],
        use_locking: bool,
        colocate: bool,
        name: str,
    ) -> None:
        """Set the attributes, from arguments that are checked."""
        if not isinstance(name, str) or not name:
            raise errors.OutOfRangeError(
                f"{OWNER}: name: expected a nonempty string, got {name!r}; leave it "
                "out for 'VariableClipping'."
            )
        super().__init__(opt, name, use_locking)
        self.use_locking, self.colocate = use_locking, colocate
        self.rows = {ref: RowLimit(axes_of[ref], limits[ref]) for ref in axes_of}

    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Let ``opt`` update the variables, then clip their rows.

        Args:
            grads_and_vars: iterable of (gradient, variable). A gradient is dense or
                sparse, with its variable's shape and dtype, or None.
            global_step: integer variable, passed to the wrapped optimizer.
            name: the name of the operation in a graph; without effect elsewhere.

        Returns:
            In a graph the operation of update and clipping; not useful in eager mode.

        Raises:
            MalformedPairsError: a TypeError; an entry is no (gradient, variable).
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable, or
                ``global_step`` cannot count.
        """
        pairs = base.check_pairs(grads_and_vars, OWNER, self.takes_wide)
        if isinstance(self.max_norm, tf.Variable):
            check_max_norm(self.max_norm)
        require_floats(OWNER, [g for g, _ in self._listed(pairs)])
        counter = base.as_counter(global_step, OWNER)
        return self.apply_together(self._apply, pairs, counter, name)

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take a step; the gradients are summed over the replicas."""
        return self._update_and_clip(pairs, self._listed(pairs), global_step, name)

    def _listed(self, pairs: Pairs) -> Pairs:
        """Return the pairs that have a gradient, and a limit for their variable."""
        return [(g, v) for g, v in pairs if g is not None and v.ref() in self.rows]

    def _update_and_clip(
        self,
        pairs: Pairs,
        listed: Pairs,
        global_step: tf.Variable | None,
        name: str | None,
        once: bool = False,
    ) -> tf.Operation | None:
        """Update, then clip the listed variables; ``once``: pass on an iterator."""
        too_large: list[tf.Tensor] = []

        def update_and_clip() -> tf.Operation | None:
            with tf.compat.v1.name_scope(name, self.get_name()) as scope:
                entries = iter(pairs) if once else pairs
                update = self.apply_inside(entries, global_step)
                # The update must write a row before the row is read.
                with tf.control_dependencies([update]):
                    clips = [self._clip(*pair, too_large) for pair in listed]
                return tf.group(update, *clips, name=scope)

        done = base.as_train_op(update_and_clip)
        self.last_step = NO_EAGER_STEP
        if tf.executing_eagerly():
            self._report(pairs, too_large)
        return done

    def _clip(
        self, gradient: Gradient, variable: tf.Variable, too_large: list[tf.Tensor]
    ) -> tf.Operation | None:
        """Clip ``variable``, unless an outer wrapper skips it in this step."""
        limit, indices = self.rows[variable.ref()], None
        if isinstance(gradient, tf.IndexedSlices):
            indices = gradient.indices
        if indices is not None and 0 in limit.axes:
            errors.warn_user(
                f"{OWNER}: expected axes without dimension 0, got a sparse gradient for"
                f" {name_of(variable)!r}, clipped over {list(limit.axes)}; the norm "
                "runs over all rows, so the whole variable is read and clipped."
            )
            indices = None
        clip: Callable[[], tf.Operation | None]
        clip = functools.partial(self._clip_now, variable, indices, limit, too_large)
        for skip in base.skips_of(self.base_optimizer):
            clip = functools.partial(
                base.unless, skip(gradient, variable), clip, variable
            )
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
        variable = own_copy(variable)
        if indices is not None:
            indices, _ = tf.unique(indices)
        values, flags = clip_rows(read_rows(variable, indices), *limit)
        too_large.append(flags)
        locking = self.use_locking
        if indices is None:
            return variable.assign(values, use_locking=locking, read_value=False)
        if base.is_reference(variable):
            rows = tf.IndexedSlices(values, indices)
            return variable.scatter_update(rows, use_locking=locking).op
        # The variable's own method would read the whole variable afterwards.
        return tf.raw_ops.ResourceScatterUpdate(
            resource=variable.handle, indices=indices, updates=values
        )

    def _report(self, pairs: Pairs, too_large: Sequence[tf.Tensor]) -> None:
        """Report an eager step: what was updated, and how many rows were clipped."""
        flags = [np.asarray(tensor) for tensor in too_large]
        count = sum(int(flag.sum()) for flag in flags)
        ending = f"{count} of {sum(flag.size for flag in flags)} rows clipped"
        report = getattr(self.inner_optimizer, "last_step", None)
        if report is None:
            absent = tuple(name_of(v) for g, v in pairs if g is None)
            reason = f"of {len(pairs)} gradients {len(absent)} absent"
            reason = reason if absent else "every gradient was present"
            report = StepReport(len(absent) < len(pairs), reason, absent)
        self.last_step = report._replace(reason=f"{report.reason}; {ending}")

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


def refuse_layers(opt: Optimizer, listed: Iterable[Any]) -> None:
    """Raise if ``opt`` trains other variables in place of the listed ones."""
    if has_layer(opt, "AGNOptimizer"):
        raise errors.UnsupportedError(
            f"{OWNER}: expected an optimizer of variables that nothing shares, got "
            "AGNOptimizer, whose shared rows it would not clip; put row clipping "
            "inside: AGNOptimizer(VariableClippingOptimizer(opt, ...), ...)."
        )
    for layer in layers_of(opt):
        trains_master = getattr(type(layer), "trains_master", None)
        for variable in map(base.as_variable, listed):
            if trains_master is not None and trains_master(layer, variable):
                raise errors.UnsupportedError(
                    f"{OWNER}: expected an optimizer that updates {name_of(variable)!r}"
                    " itself, got one that trains its float32 master; put row clipping "
                    "inside of MixedPrecisionOptimizerWrapper."
                )


def listed_axes(vars_to_clip_dims: Any) -> dict[Any, tuple[int, ...]]:
    """Return ``variable.ref()`` -> axes, copied and checked, but not resolved."""
    if not isinstance(vars_to_clip_dims, Mapping):
        raise errors.AxesError(
            f"{DIMS}: expected a dict {{variable: [axes]}}, got "
            f"{type(vars_to_clip_dims).__name__}; map each variable to its axes."
        )
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
        axes_of[variable.ref()] = checked_axes(name_of(variable), dims)
    return axes_of


def limits_of(max_norm: Any, listed: Iterable[Any]) -> dict[Any, Any]:
    """Return ``variable.ref()`` -> the largest norm; raise unless all are > 0."""
    if not isinstance(max_norm, Mapping):
        check_max_norm(max_norm)
        return dict.fromkeys(listed, max_norm)
    keys = [base.as_variable(key) for key in max_norm]
    refs = [key.ref() if isinstance(key, tf.Variable) else key for key in keys]
    if {*refs} != {*listed}:
        raise errors.UnknownNameError(
            f"{OWNER}: max_norm: expected the keys of vars_to_clip_dims, got "
            f"{', '.join(map(name_of, keys))}; give each listed variable a norm."
        )
    for norm in max_norm.values():
        check_max_norm(norm)
    return dict(zip(refs, max_norm.values(), strict=True))


def check_max_norm(max_norm: Any) -> None:
    """Raise unless ``max_norm``, if its value is known, is a finite number > 0."""
    known = max_norm
    if isinstance(max_norm, tf.Variable) and tf.executing_eagerly():
        known = max_norm.numpy()
    elif tf.is_tensor(max_norm):
        known = tf.get_static_value(max_norm)
    if known is not None or max_norm is None:
        if not is_positive(number_of(known)):
            raise errors.OutOfRangeError(
                f"{OWNER}: max_norm: expected a finite number > 0, got {known!r}; give "
                "the largest norm that a row may keep."
            )
