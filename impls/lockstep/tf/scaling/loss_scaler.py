"""Loss scales that depend on the largest gradient: Backoff and LogMax."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.base.pairs import listed_pairs
from lockstep.messages.scaling import automatic_scaler as words
from lockstep.quirks import quirks_of
from lockstep.tf.scaling.loss_scale import state_variable
from lockstep.tf.shared.scaling.automatic_scale import (
    as_amax,
    dtype_of,
    find_largest,
    start_scale,
    step_scale,
)
from lockstep.tf.wrapper import as_gradient

__all__ = ["AutomaticLossScaler"]


@documented
class AutomaticLossScaler(tf.Module):
    SUPPORTED_ALGOS: ClassVar[list[str]] = words.ALGORITHMS

    def __init__(
        self,
        algorithm: str = "Backoff",
        params: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> None:
        self.algorithm = words.algorithm_name(algorithm)
        self.policy = words.automatic_policy(self.algorithm, params, strict)
        super().__init__()
        self.strict = strict
        first = start_scale(self.algorithm, self.policy)
        self._kind = type(first)
        with tf.init_scope():
            self._state = {
                name: state_variable(name, value, dtype_of(name))
                for name, value in first._asdict().items()
            }

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return self._state["loss_scale"].read_value()

    @property
    def state(self) -> dict[str, tf.Variable]:
        """The variables that an update changes, by name."""
        return dict(self._state)

    def at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        return self.loss_scale <= self.policy.scale_min

    @tf.autograph.experimental.do_not_convert
    @documented
    def update_op(self, has_nan: Any, amax: Any) -> tf.Tensor:
        quirks = quirks_of(self.strict)
        words.check_update(has_nan, amax, quirks.arguments_unchecked)
        has_nan = tf.cast(has_nan, tf.bool)
        must_be_float32 = quirks.logmax_overflow and self.algorithm == "logmax"
        amax = as_amax(amax, must_be_float32)
        before = self._kind(*(v.read_value() for v in self._state.values()))
        after = step_scale(self.policy, before, has_nan, amax)
        pairs = zip(self._state.values(), after, strict=True)
        moved = [variable.assign(value, read_value=False) for variable, value in pairs]
        done = [] if tf.executing_eagerly() else moved
        with tf.control_dependencies(done):
            return tf.identity(after.iteration)

    @staticmethod
    @documented
    def check_grads(
        grads_and_vars: Iterable[tuple[Any, Any]],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        pairs = listed_pairs(grads_and_vars, words.CHECK_GRADS)
        gradients = [as_gradient(g, v, words.SCALER) for g, v in pairs]
        values = [values_of(g) for g in gradients if g is not None]
        words.check_check_grads_dtypes([value.dtype.name for value in values])
        return find_largest(values)


def values_of(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """Return the stored elements of a gradient."""
    return gradient.values if isinstance(gradient, tf.IndexedSlices) else gradient
