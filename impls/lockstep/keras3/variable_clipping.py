"""The row-clipping wrapper, for Keras 3 optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep import errors
from lockstep.keras3 import gradients as stack
from lockstep.keras3.gradients import Gradient, value_of
from lockstep.keras3.wrapper import Wrapper
from lockstep.tf.shared import variable_clipping as shared
from lockstep.tf.shared.gradients import MODEL, key_of, name_of

OWNER, DIMS = shared.OWNER, shared.DIMS


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
        shared.check_arguments(opt, vars_to_clip_dims, name)
        super().__init__(opt, name)
        listed = listed_axes(vars_to_clip_dims)
        names = [name_of(key) for key, _ in listed]
        limits = shared.limits_of(max_norm, names, name_of, False)
        limits = {name: float(norm) for name, norm in limits.items()}
        own = limits if isinstance(max_norm, Mapping) else float(max_norm)
        # Not setattr: Keras and TensorFlow would track the attributes.
        vars(self).update(_listed=listed, _positions={}, _rows={})
        vars(self).update(_limits=limits, max_norm=own)

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``; find the listed ones."""
        if not self.built:
            variables = stack.require_all(variables, OWNER)
            rows: dict[Any, tuple[tuple[int, ...], float]] = {}
            for key, axes in self._listed:
                variable = variables[place_of(key, variables, self._positions)]
                if key_of(variable) in rows:
                    raise errors.UnsupportedError(
                        f"{DIMS}: expected each variable once, got "
                        f"{name_of(variable)!r} twice; list it once, with all axes."
                    )
                limit = self._limits[name_of(key)]
                name, rank = name_of(variable), len(variable.shape)
                rows[key_of(variable)] = shared.resolved_axes(name, rank, axes), limit
            vars(self)["_rows"] = rows
        super().build(variables)

    def build_state(self, variables: Sequence[Any]) -> None:
        """Raise if a wrapped optimizer trains a listed variable through a master."""
        for variable in variables:
            has_master = self._slots.master_of(variable) is not variable
            if has_master and key_of(variable) in self._rows:
                shared.refuse_master(variable)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the wrapped optimizer's step, then clip."""
        period = self.gradient_accumulation_steps
        # A sum that is applied may have a gradient although this one is absent.
        pairs = zip(gradients, variables, strict=True)
        pairs = [(g, v) for g, v in pairs if period or g is not None]
        listed = [(g, v) for g, v in pairs if key_of(v) in self._rows]
        due = tf.equal((self._iterations.value + 1) % period, 0) if period else None
        super().update(gradients, variables)
        clipped: list[tuple[tf.Tensor | None, tf.Tensor]] = []

        def clip() -> None:
            clipped.extend(self._clip(*pair) for pair in listed)

        if due is None:
            clip()
        else:
            tf.cond(due, clip, lambda: None)
        if tf.executing_eagerly():
            flags = [np.asarray(too_large) for _, too_large in clipped]
            for k, (indices, _) in enumerate(clipped):
                if indices is not None:  # Each row counts once.
                    flags[k] = flags[k][np.unique(indices, return_index=True)[1]]
            count = sum(int(flag.sum()) for flag in flags)
            size = sum(flag.size for flag in flags)
            ending = f"{count} of {size} rows clipped"
            self._extend_report(gradients, variables, ending)

    def _clip(
        self, gradient: Gradient, variable: Any
    ) -> tuple[tf.Tensor | None, tf.Tensor]:
        """Clip a variable, or the rows of a sparse gradient; duplicates twice.

        Return the indices of the rows, and which of their norms were too large.
        """
        (axes, max_norm), value = self._rows[key_of(variable)], value_of(variable)
        is_sparse = isinstance(gradient, tf.IndexedSlices)
        indices = gradient.indices if is_sparse else None
        if self.gradient_accumulation_steps:
            indices = None
        elif indices is not None and 0 in axes:
            shared.warn_of_whole(variable, axes)
            indices = None
        if indices is None:
            rows, too_large = shared.clip_rows(value.read_value(), axes, max_norm)
            value.assign(rows, read_value=False)
            return None, too_large
        # A mirrored variable has no sparse_read of its own outside of a replica.
        first, is_mirrored = value, isinstance(value, tf.distribute.DistributedValues)
        if is_mirrored:
            strategy = value.distribute_strategy
            first = strategy.experimental_local_results(value)[0]
        rows, too_large = shared.clip_rows(first.sparse_read(indices), axes, max_norm)

        def write(copy: tf.Variable) -> None:
            # The variable's own method would read the whole variable afterwards.
            tf.raw_ops.ResourceScatterUpdate(
                resource=copy.handle, indices=indices, updates=rows
            )

        if is_mirrored:
            strategy.extended.update(value, write, group=False)
        else:
            write(value)
        return indices, too_large

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; variables are replaced by their paths.

        ``positions``, path -> position, is used if Keras loads several equal paths.
        """
        by_path: dict[str, list[int]] = {}
        positions = dict(self._positions)
        for key, axes in self._listed:
            path = name_of(key)
            if path in by_path:
                refuse_several(key)
            by_path[path] = list(axes)
            if self.built:
                place = place_of(key, self._trainable_variables, self._positions)
                positions[path] = place
        return {
            **super().get_config(),
            "vars_to_clip_dims": by_path,
            "positions": positions,
            "max_norm": self.max_norm,
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


def listed_axes(
    vars_to_clip_dims: Mapping[Any, Any],
) -> list[tuple[Any, tuple[int, ...]]]:
    """Return (path or variable, axes) of each entry; ``build`` finds the variables."""
    listed = []
    for key, dims in vars_to_clip_dims.items():
        key = stack.as_variable(key)
        if not isinstance(key, str) and not stack.is_variable(key):
            raise errors.AxesError(
                f"{DIMS}: expected paths or variable.value.ref() as keys, got "
                f"{type(key).__name__}; use variable.path."
            )
        listed.append((key, shared.checked_axes(name_of(key), dims)))
    return listed


def place_of(key: Any, variables: Sequence[Any], positions: Mapping[str, int]) -> int:
    """Return the position of the variable, or of its master, for a path or variable.

    While Keras loads a file it creates layers outside of the model, so
    ``model/layer/kernel`` becomes ``layer/kernel``, which may occur several times. The
    order is kept: if several variables match equally, ``positions`` decides.
    """
    names = [name_of(variable) for variable in variables]
    count = range(len(names))
    if isinstance(key, str):
        paths = [f"/{name}" for name in names]
        path = f"/{key}"
        alike = [k for k in count if path.endswith(paths[k]) or paths[k].endswith(path)]
        places = [k for k in alike if names[k] == key] or alike
        places = [k for k in places if k == positions.get(key)] or places
    else:
        # The variables of a model that masters and shared variables were made for.
        models = [key_of(getattr(variable, MODEL, variable)) for variable in variables]
        places = [k for k in count if models[k] == key_of(key)]
    if len(places) > 1:
        refuse_several(key)
    if not places:
        name = name_of(key)
        close = errors.nearest(name, names)
        advice = f"did you mean {close!r}?" if close else "list what it updates."
        raise errors.UnknownNameError(
            f"{DIMS}: expected variables among {', '.join(names):.300}, got {name!r}; "
            f"{advice}"
        )
    return places[0]


def refuse_several(key: Any) -> None:
    """Raise for a path that several variables have."""
    raise errors.UnsupportedError(
        f"{DIMS}: expected one variable for {name_of(key)!r}, got several; use "
        "variable.value.ref() as keys."
    )
