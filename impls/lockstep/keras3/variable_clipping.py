"""The row-clipping wrapper, for Keras 3 optimizers."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from lockstep import errors
from lockstep.checks import is_positive, number_of
from lockstep.interface import StepReport
from lockstep.keras3.gradients import (
    Gradient,
    as_variable,
    is_variable,
    key_of,
    name_of,
    require_all,
    value_of,
)
from lockstep.keras3.wrapper import Wrapper, require_optimizer, wrappers_of
from lockstep.pipeline import has_layer
from lockstep.tf.shared.rows import clip_rows

OWNER = "VariableClippingOptimizer"
DIMS = f"{OWNER}: vars_to_clip_dims"


class Listed(NamedTuple):
    """An entry of ``vars_to_clip_dims``; a path's variable is known after ``build``."""

    key: Any
    axes: tuple[int, ...]
    max_norm: float


class Clipped(NamedTuple):
    """Which norms of one variable were too large; the rows of a sparse gradient."""

    indices: tf.Tensor | None
    too_large: tf.Tensor


@keras.saving.register_keras_serializable(package="lockstep")
class VariableClippingOptimizer(Wrapper):
    """After each update, hold the norm of a variable's rows to a limit.

    For each variable w that is listed and has a gradient: after ``opt`` has updated it,
    n = sqrt(sum over its axes of w^2), and where n > max_norm, w = w max_norm / n. Rows
    with a norm up to max_norm keep their bits. After a sparse gradient, only its rows
    are read and written, even if ``opt`` updates others, unless the norm is over axis
    0. Half precision is clipped in float32.

    With Keras' gradient accumulation a dense sum is applied: the whole variable is
    clipped, at the step that applies it. Keras updates ``use_ema`` averages and
    enforces constraints before the clipping.

    In a configuration, so also in files, variables are listed by their paths. Keras
    loads ``model/layer/kernel`` as ``layer/kernel``. So a path that no variable has
    matches the one variable with the same ending.

    Args:
        opt: any Keras optimizer, or a wrapper. It may already be built.
        vars_to_clip_dims: ``variable.path``, or ``variable.value.ref()`` -> list or
            tuple of axes over which the norm is computed: [1] for the rows of a matrix,
            [] for its elements. A variable that is not listed is never clipped.
        max_norm: the largest norm that is not clipped, > 0 and finite; or a mapping
            from the keys of ``vars_to_clip_dims`` to such norms.
        use_locking, colocate_clip_ops_with_vars: without effect.
        name: the name that ``get_name`` returns.

    Attributes:
        inner_optimizer: ``opt``.
        last_step: what the last eager step did, a
            :class:`~lockstep.interface.StepReport`. Steps in graphs and inside of a
            ``tf.function``, where ``fit`` takes its own, are not reported.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no Keras optimizer.
        AxesError: a TypeError; the axes of a variable are no list of integers.
        OutOfRangeError: a ValueError; ``max_norm``, an empty name, an axis that a
            variable does not have.
        UnknownNameError: a ValueError, from ``build``; the optimizer does not update a
            listed variable (the message has the nearest path).

    Cost: one read and one write of the gradient's rows. A norm over axis 0 reads the
    whole variable; with a sparse gradient this causes a warning.

    Origin: ``tf.contrib.opt.VariableClippingOptimizer``, TensorFlow 1.15. Unlike the
    constraint ``keras.constraints.MaxNorm`` it reads only the gradient's rows.

    Example:
        >>> weight = keras.Variable([[3.0, 4.0], [0.5, 0.25]], name="w")
        >>> sgd = keras.optimizers.SGD(1.0)
        >>> optimizer = VariableClippingOptimizer(sgd, {"w": [1]}, max_norm=2.5)
        >>> optimizer.apply([keras.ops.zeros((2, 2))], [weight])
        >>> weight.numpy().tolist()
        [[1.5, 2.0], [0.5, 0.25]]
        >>> optimizer.last_step.reason
        'every gradient was present; 1 of 2 rows clipped'
    """

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        vars_to_clip_dims: Mapping[Any, Sequence[int]],
        max_norm: float | Mapping[Any, float],
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
    ) -> None:
        require_optimizer(opt, OWNER, "whose steps come first")
        if not isinstance(name, str) or not name:
            raise errors.OutOfRangeError(
                f"{OWNER}: name: expected a nonempty string, got {name!r}; leave it "
                "out for 'VariableClipping'."
            )
        listed = listed_variables(vars_to_clip_dims, max_norm)
        if has_layer(opt, "AGNOptimizer"):
            raise errors.UnsupportedError(
                f"{OWNER}: expected an optimizer of variables that nothing shares, got "
                "AGNOptimizer, whose shared rows it would not clip; put row clipping "
                "inside: AGNOptimizer(VariableClippingOptimizer(opt, ...), ...)."
            )
        super().__init__(opt, name)
        limits: Any = {name_of(entry.key): entry.max_norm for entry in listed}
        limits = limits if isinstance(max_norm, Mapping) else float(max_norm)
        # Not setattr: Keras and TensorFlow would track the attributes.
        vars(self).update(_listed=listed, _positions={}, _rows={}, max_norm=limits)

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``; find the listed ones."""
        if not self.built:
            variables = require_all(variables, OWNER)
            models = [self._stand_for.get(key_of(v), v) for v in variables]
            for entry in self._listed:
                for k in matching(entry.key, models, self._positions):
                    self._refuse_master_inside(models[k])
                    if key_of(variables[k]) in self._rows:
                        refuse_twice(name_of(models[k]))
                    axes = resolved_axes(models[k], entry.axes)
                    self._rows[key_of(variables[k])] = axes, entry.max_norm
        super().build(variables)

    def _refuse_master_inside(self, variable: Any) -> None:
        """Raise if a wrapped optimizer trains ``variable`` through a master."""
        for layer in wrappers_of(self):
            trains_master = getattr(type(layer), "trains_master", None)
            if trains_master is not None and trains_master(layer, variable):
                raise errors.UnsupportedError(
                    f"{OWNER}: expected an optimizer that updates {name_of(variable)!r}"
                    " itself, got one that trains its float32 master; put row clipping "
                    "inside of MixedPrecisionOptimizerWrapper."
                )

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the wrapped optimizer's step, then clip."""
        period = self.gradient_accumulation_steps
        # A sum that is applied may have a gradient although this one is absent.
        pairs = zip(gradients, variables, strict=True)
        pairs = [(g, v) for g, v in pairs if period or g is not None]
        listed = [(g, v) for g, v in pairs if key_of(v) in self._rows]
        due = tf.equal((self._iterations.value + 1) % period, 0) if period else None
        super().update(gradients, variables)
        clipped: list[Clipped] = []

        def clip() -> None:
            clipped.extend(self._clip(*pair) for pair in listed)

        if due is None:
            clip()
        else:
            tf.cond(due, clip, lambda: None)
        if tf.executing_eagerly():
            self._report(gradients, variables, clipped)

    def _clip(self, gradient: Gradient, variable: Any) -> Clipped:
        """Clip a variable, or the rows of a sparse gradient.

        Duplicate rows are computed twice and written with equal values. For distinct
        rows XLA would have to know their number.
        """
        (axes, max_norm), value = self._rows[key_of(variable)], value_of(variable)
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        indices = gradient.indices if is_sparse else None
        if self.gradient_accumulation_steps:
            indices = None
        elif indices is not None and 0 in axes:
            errors.warn_user(
                f"{OWNER}: expected axes without dimension 0, got a sparse gradient for"
                f" {name_of(variable)!r}, clipped over {list(axes)}; the norm runs over"
                " all rows, so the whole variable is read and clipped."
            )
            indices = None
        if indices is None:
            rows, too_large = clip_rows(value.read_value(), axes, max_norm)
            value.assign(rows, read_value=False)
            return Clipped(None, too_large)
        # A mirrored variable has no sparse_read of its own outside of a replica.
        first, is_mirrored = value, isinstance(value, tf.distribute.DistributedValues)
        if is_mirrored:
            strategy = value.distribute_strategy
            first = strategy.experimental_local_results(value)[0]
        rows, too_large = clip_rows(first.sparse_read(indices), axes, max_norm)

        def write(copy: tf.Variable) -> None:
            # The variable's own method would read the whole variable afterwards.
            tf.raw_ops.ResourceScatterUpdate(
                resource=copy.handle, indices=indices, updates=rows
            )

        if is_mirrored:
            strategy.extended.update(value, write, group=False)
        else:
            write(value)
        return Clipped(indices, too_large)

    def _report(
        self,
        gradients: list[Gradient],
        variables: list[Any],
        clipped: Sequence[Clipped],
    ) -> None:
        """Report an eager step; each row of a sparse gradient counts once."""
        flags = [np.asarray(entry.too_large) for entry in clipped]
        for k, (indices, _) in enumerate(clipped):
            if indices is not None:
                flags[k] = flags[k][np.unique(indices, return_index=True)[1]]
        count = sum(int(flag.sum()) for flag in flags)
        ending = f"{count} of {sum(flag.size for flag in flags)} rows clipped"
        report = getattr(self.inner_optimizer, "last_step", None)
        if report is None:
            pairs = zip(gradients, variables, strict=True)
            absent = tuple(name_of(v) for g, v in pairs if g is None)
            reason = f"of {len(variables)} gradients {len(absent)} absent"
            reason = reason if absent else "every gradient was present"
            report = StepReport(len(absent) < len(variables), reason, absent)
        self.last_step = report._replace(reason=f"{report.reason}; {ending}")

    def shown(self) -> dict[str, Any]:
        """Return the arguments that a repr shows."""
        listed = {name_of(key): list(axes) for key, axes, _ in self._listed}
        return {"vars_to_clip_dims": listed, "max_norm": self.max_norm}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; variables are replaced by their paths.

        ``positions``, path -> position, is used if Keras loads several equal paths.
        """
        by_path: dict[str, list[int]] = {}
        positions = dict(self._positions)
        for key, axes, _ in self._listed:
            if name_of(key) in by_path:
                refuse_several_named(key)
            by_path[name_of(key)] = list(axes)
            if self.built:
                (place,) = matching(key, self._trainable_variables, self._positions)
                positions[name_of(key)] = place
        is_number = isinstance(self.max_norm, float)
        return {
            **super().get_config(),
            "vars_to_clip_dims": by_path,
            "positions": positions,
            "max_norm": self.max_norm if is_number else dict(self.max_norm),
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Create a wrapper from the result of ``get_config``."""
        arguments = dict(config)
        positions = arguments.pop("positions", {})
        wrapper = super().from_config(arguments, custom_objects)
        vars(wrapper)["_positions"] = positions
        return wrapper


def listed_variables(vars_to_clip_dims: Any, max_norm: Any) -> list[Listed]:
    """Return the arguments as a list, checked as far as possible before ``build``."""
    if not isinstance(vars_to_clip_dims, Mapping):
        raise errors.AxesError(
            f"{DIMS}: expected a dict {{variable: [axes]}}, got "
            f"{type(vars_to_clip_dims).__name__}; map each variable to its axes."
        )
    norms = max_norm
    if isinstance(max_norm, Mapping):
        norms = {name_of(as_variable(key)): norm for key, norm in max_norm.items()}
        names = [name_of(as_variable(key)) for key in vars_to_clip_dims]
        for name in {*norms} ^ {*names}:
            raise errors.UnknownNameError(
                f"{OWNER}: max_norm: expected the keys of vars_to_clip_dims, got "
                f"{'one' if name in norms else 'none'} for {name!r}; give each listed "
                "variable a norm."
            )
    listed: list[Listed] = []
    keys = set()
    for key, dims in vars_to_clip_dims.items():
        key = as_variable(key)
        if not isinstance(key, str) and not is_variable(key):
            raise errors.AxesError(
                f"{DIMS}: expected paths or variable.value.ref() as keys, got "
                f"{type(key).__name__}; use variable.path."
            )
        axes = integers(dims, name_of(key))
        if not isinstance(key, str):
            resolved_axes(key, axes)
            if key_of(key) in keys:
                refuse_twice(name_of(key))
            keys.add(key_of(key))
        norm = norms[name_of(key)] if isinstance(norms, Mapping) else norms
        listed.append(Listed(key, axes, checked_norm(norm)))
    if not isinstance(norms, Mapping):
        checked_norm(norms)
    return listed


def checked_norm(max_norm: Any) -> float:
    """Return a limit as a float; raise unless it is finite and > 0."""
    if not is_positive(number_of(max_norm)):
        raise errors.OutOfRangeError(
            f"{OWNER}: max_norm: expected a finite number > 0, got {max_norm!r}; give "
            "the largest norm that a row may keep."
        )
    return float(max_norm)


def integers(dims: Any, name: str) -> tuple[int, ...]:
    """Return the axes of one variable; raise unless they are a list of integers."""
    fine = isinstance(dims, Iterable) and not isinstance(dims, str | bytes | Mapping)
    axes = list(dims) if fine else []
    fine = fine and not any(isinstance(axis, bool) for axis in axes)
    try:
        axes = [operator.index(axis) for axis in axes]
    except TypeError:
        fine = False
    if not fine:
        raise errors.AxesError(
            f"{DIMS}: expected a list of integers for {name!r}, got {dims!r}; write "
            "[1] for the rows of a matrix."
        )
    return tuple(axes)


def resolved_axes(variable: Any, axes: Sequence[int]) -> tuple[int, ...]:
    """Return ``axes`` as nonnegative numbers, ascending; raise if it has no such."""
    rank, name = len(variable.shape), name_of(variable)
    resolved = sorted({axis % rank for axis in axes if -rank <= axis < rank})
    if len(resolved) < len(axes):
        raise errors.OutOfRangeError(
            f"{DIMS}: expected different axes of {name!r}, which has {rank} dimensions,"
            f" got {list(axes)}; list each axis once."
        )
    return tuple(resolved)


def matching(
    key: Any, variables: Sequence[Any], positions: Mapping[str, int]
) -> list[int]:
    """Return the position of the variable for a path or variable, as a list.

    While Keras loads a file it creates layers outside of the model, so
    ``model/layer/kernel`` becomes ``layer/kernel``, which may occur several times. The
    order is kept: if several variables match equally, ``positions`` decides.
    """
    names = [name_of(variable) for variable in variables]
    if isinstance(key, str):
        path = f"/{key}"
        alike = [
            k
            for k, name in enumerate(names)
            if path.endswith(f"/{name}") or f"/{name}".endswith(path)
        ]
        places = [k for k in alike if names[k] == key] or alike
        if positions.get(key) in places:
            places = [positions[key]]
    else:
        keys = [key_of(variable) for variable in variables]
        places = [k for k, known in enumerate(keys) if known == key_of(key)]
    if len(places) > 1:
        refuse_several_named(key)
    if not places:
        name = name_of(key)
        close = errors.nearest(name, names)
        advice = f"did you mean {close!r}?" if close else "list what it updates."
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise errors.UnknownNameError(
            f"{DIMS}: expected variables among {shown}, got {name!r}; {advice}"
        )
    return places


def refuse_twice(name: str) -> None:
    """Raise for a variable with two entries."""
    raise errors.UnsupportedError(
        f"{DIMS}: expected each variable once, got {name!r} twice; list it once, with "
        "all of its axes."
    )


def refuse_several_named(key: Any) -> None:
    """Raise for a path that several variables have."""
    raise errors.UnsupportedError(
        f"{DIMS}: expected one variable for {name_of(key)!r}, got several; use "
        "variable.value.ref() as keys."
    )
