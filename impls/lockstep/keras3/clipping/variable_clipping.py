"""The row-clipping wrapper, for Keras 3 optimizers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.errors import warn_user
from lockstep.interface import StepReport
from lockstep.keras3.base.gradients import (
    Gradient,
    key_of,
    name_of,
    value_of,
    without_duplicates,
)
from lockstep.keras3.base.train_v1 import HiddenList, StateList, require_all
from lockstep.keras3.base.wrapper import Wrapper, layers_of
from lockstep.keras3.clipping.row_axes import (
    axes_by_variable,
    by_path,
    by_variable,
    limits_of,
    listed_variables,
    positions_of,
    resolved,
)
from lockstep.keras3.clipping.row_writing import (
    each_row_once,
    read_rows,
    subtract_rows,
    write_rows,
)
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.clipping import variable_clipping as words
from lockstep.messages.masters import refusals as masters_refusals
from lockstep.messages.nouns import KERAS3
from lockstep.messages.workers.agn import refuse_row_clipping_around
from lockstep.quirks import quirks_of
from lockstep.tf.shared.clipping.clip_rows import clip_rows, excess

__all__ = ["VariableClippingOptimizer", "clipping_layers"]


class Clipped(NamedTuple):
    """Flags of the norms of one variable that were too large: all rows, or [k]."""

    indices: tf.Tensor | None
    too_large: tf.Tensor


@keras.saving.register_keras_serializable(package="lockstep")
@documented
class VariableClippingOptimizer(Wrapper):
    """...

    Half precision is clipped in float32. With Keras' gradient accumulation a dense sum
    is applied: the whole variable is clipped, at the step that applies it. Keras
    updates ``use_ema`` averages and enforces constraints before the clipping.

    Keys of ``vars_to_clip_dims`` are paths (``variable.path``), or
    ``variable.value.ref()``; in a configuration, so also in files, they are paths.
    Keras loads ``model/layer/kernel`` as ``layer/kernel``. So a path that no variable
    has matches the one variable with the same ending.

    ``fit`` passes a ``zip``, so under ``strict`` nothing is clipped there.

    Args:
        opt: any Keras optimizer, or a wrapper. It may already be built.

    Raises:
        ...
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
        strict: bool = False,
    ) -> None:
        if not isinstance(opt, keras.optimizers.Optimizer):
            raise not_an_optimizer(words.WRAPPER, opt, KERAS3)
        words.check_name(name)
        quirks = quirks_of(strict)
        listed = listed_variables(vars_to_clip_dims, resolve=not quirks.row_clip_axes)
        if not quirks.arguments_unchecked:
            refuse_row_clipping_around(opt)
        limits = limits_of(max_norm, listed, quirks)
        super().__init__(opt, name)
        self.strict = strict
        # Not setattr: Keras and TensorFlow would track the attributes.
        vars(self).update(_listed=listed, _positions={}, _axes={}, _used_up=False)
        vars(self).update(max_norm=limits, _limits={})

    @property
    def keeps_duplicates(self) -> bool:
        """Whether ``update`` gets duplicate rows unsummed."""
        return self._quirks.row_clip_duplicates

    @property
    def variables(self) -> StateList:
        """The state of the wrapped optimizer; the wrapper has none.

        Strict: ``variables()``, TensorFlow 1's method, returns an empty list.
        """
        state = super().variables
        return HiddenList(state) if self._quirks.row_clip_variables else state

    def build(self, variables: Sequence[Any]) -> None:
        """Create the state for ``variables``; find the listed ones."""
        if not self.built:
            variables = require_all(variables, words.WRAPPER)
            models = [self._stand_for.get(key_of(v), v) for v in variables]
            listed, positions = self._listed, self._positions
            axes_of = axes_by_variable(listed, models, self._quirks, positions)
            for variable in models:
                if key_of(variable) in axes_of and has_master(self, variable):
                    raise masters_refusals.CLIPS_OUTSIDE.error(name=name_of(variable))
            pairs = list(zip(variables, map(key_of, models), strict=True))
            axes = {key_of(v): axes_of[model] for v, model in pairs if model in axes_of}
            vars(self)["_axes"] = axes
            limits = by_variable(self.max_norm, listed, models, positions)
            norms = {key_of(v): limits.get(model) for v, model in pairs}
            vars(self)["_limits"] = {key: norms[key] for key in axes}
        super().build(variables)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
    ) -> tf.Variable:
        """Update the variables, then clip: see the base class."""
        uses_up = self._quirks.row_clip_iterator
        used_up = uses_up and isinstance(grads_and_vars, Iterator)
        with without_limits(self) if used_up else contextlib.nullcontext():
            return super().apply_gradients(grads_and_vars, global_step, name)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the wrapped optimizer's step, then clip."""
        listed = self._to_clip(gradients, variables)
        period = self.gradient_accumulation_steps
        due = tf.equal((self._iterations.value + 1) % period, 0) if period else True
        summed, inner = gradients, self.inner_optimizer
        sums = isinstance(inner, Wrapper) or getattr(inner, "keeps_duplicates", False)
        if self.keeps_duplicates and not sums:
            summed = [without_duplicates(gradient) for gradient in gradients]
        super().update(summed, variables)
        clipped: list[Clipped] = []

        def clip() -> None:
            clipped.extend(self._clip(*pair) for pair in listed)

        if period:
            tf.cond(due, clip, lambda: None)
        else:
            clip()
        if tf.executing_eagerly():
            self.last_step = self._report(gradients, variables, clipped)

    def shown(self) -> dict[str, Any]:
        """Return the arguments that a repr shows."""
        listed = {name_of(key): list(axes) for key, axes in self._listed}
        return {"vars_to_clip_dims": listed, "max_norm": self.max_norm}

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments; variables are replaced by their paths.

        ``positions``, path -> position, is used if Keras loads several equal paths.
        """
        numbered = isinstance(self.max_norm, float)
        return {
            **super().get_config(),
            "vars_to_clip_dims": by_path(self._listed),
            "positions": self._known_positions(),
            "max_norm": self.max_norm if numbered else dict(self.max_norm),
            "name": self.name,
            "strict": self.strict,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any], custom_objects: Any = None) -> Any:
        """Create a wrapper from the result of ``get_config``."""
        arguments = dict(config)
        positions = arguments.pop("positions", {})
        wrapper = super().from_config(arguments, custom_objects)
        vars(wrapper)["_positions"] = positions
        return wrapper

    def _known_positions(self) -> dict[str, int]:
        """Return path -> position among the variables, as far as they are known."""
        if not self.built:
            return dict(self._positions)
        return positions_of(self._listed, self._trainable_variables, self._positions)

    def _to_clip(
        self, gradients: list[Gradient], variables: list[Any]
    ) -> list[tuple[Gradient, Any]]:
        """Return the pairs with an applied gradient and a listed variable.

        With gradient accumulation the sum is applied. So a gradient that is absent now
        may have been present before.
        """
        if self._used_up:
            return []
        sums = bool(self.gradient_accumulation_steps)
        pairs = zip(gradients, variables, strict=True)
        updated = [(g, v) for g, v in pairs if sums or g is not None]
        listed = [(g, v) for g, v in updated if key_of(v) in self._axes]
        for _, variable in listed:
            resolved(variable, self._axes[key_of(variable)])
        return listed

    def _clip(self, gradient: Gradient, variable: Any) -> Clipped:
        """Clip a variable, or the rows of a sparse gradient.

        Duplicate rows are computed twice and written with equal values. For distinct
        rows XLA would have to know their number.
        """
        axes, value = self._axes[key_of(variable)], value_of(variable)
        indices = None
        if isinstance(gradient, tf.IndexedSlices):
            indices = gradient.indices
        if self.gradient_accumulation_steps:
            indices = None
        elif indices is not None and 0 in axes:
            # Unresolved axes may be negative; like the original, look for 0 only.
            warn_user(words.whole_variable(name_of(variable), axes))
            indices = None
        rows = read_rows(value, indices)
        max_norm = self._limits[key_of(variable)]
        clipped, too_large = clip_rows(rows, axes, max_norm)
        if self._quirks.row_clip_subtracted:
            difference = excess(rows, axes, max_norm, self._quirks)
            subtract_rows(value, indices, difference)
        else:
            write_rows(value, indices, clipped)
        return Clipped(indices, too_large)

    def _report(
        self,
        gradients: list[Gradient],
        variables: list[Any],
        clipped: Sequence[Clipped],
    ) -> StepReport:
        """Return the report of an eager step."""
        flags = [each_row_once(*entry) for entry in clipped]
        return words.report(
            getattr(self.inner_optimizer, "last_step", None),
            [name_of(variable) for variable in variables],
            [gradient is None for gradient in gradients],
            sum(flag.size for flag in flags),
            sum(int(flag.sum()) for flag in flags),
        )


def has_master(optimizer: Any, variable: Any) -> bool:
    """Whether a wrapped optimizer trains ``variable`` through a master."""
    while isinstance(optimizer, Wrapper):
        optimizer = optimizer.inner_optimizer
        trains_master = getattr(optimizer, "trains_master", None)
        if trains_master is not None and trains_master(variable):
            return True
    return False


def clipping_layers(optimizer: Any) -> list[VariableClippingOptimizer]:
    """Return the row-clipping wrappers of a stack, outermost first."""
    kind = VariableClippingOptimizer
    return [layer for layer in layers_of(optimizer) if isinstance(layer, kind)]


@contextlib.contextmanager
def without_limits(optimizer: Any) -> Iterator[None]:
    """Turn off clipping here and in wrapped optimizers, within the ``with`` block."""
    layers = clipping_layers(optimizer)
    for layer in layers:
        vars(layer)["_used_up"] = True
    try:
        yield
    finally:
        for layer in layers:
            vars(layer)["_used_up"] = False
