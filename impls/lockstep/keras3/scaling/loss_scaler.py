"""Loss scales that depend on the largest gradient: Backoff and LogMax (Keras 3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import as_gradient, value_of
from lockstep.keras3.scaling.loss_scale import state_variable
from lockstep.messages.base.pairs import listed_pairs
from lockstep.messages.scaling import automatic_scaler as words
from lockstep.quirks import quirks_of
from lockstep.tf.shared.scaling.automatic_scale import (
    as_amax,
    dtype_of,
    find_largest,
    start_scale,
    step_scale,
)

__all__ = ["AutomaticLossScaler"]


@keras.saving.register_keras_serializable(package="lockstep")
@documented
class AutomaticLossScaler(tf.Module):
    """...

    State: ``tf.train.Checkpoint`` saves it; ``get_config`` has the arguments only.
    """

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
        self._params = dict(params or {})
        first = start_scale(self.algorithm, self.policy)
        self._kind = type(first)
        self._state = {
            name: state_variable(name, value, dtype_of(name))
            for name, value in first._asdict().items()
        }

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return value_of(self._state["loss_scale"]).read_value()

    @property
    def state(self) -> dict[str, keras.Variable]:
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
        variables = [value_of(variable) for variable in self._state.values()]
        before = self._kind(*(variable.read_value() for variable in variables))
        after = step_scale(self.policy, before, has_nan, amax)
        for variable, value in zip(variables, after, strict=True):
            variable.assign(value, read_value=False)
        return after.iteration

    @staticmethod
    @documented
    def check_grads(
        grads_and_vars: Iterable[tuple[Any, Any]],
    ) -> tuple[tf.Tensor, tf.Tensor]:
        pairs = listed_pairs(grads_and_vars, words.CHECK_GRADS)
        gradients = [as_gradient(g, v, words.SCALER) for g, v in pairs]
        values = [getattr(g, "values", g) for g in gradients if g is not None]
        words.check_check_grads_dtypes([value.dtype.name for value in values])
        return find_largest(values)

    def __repr__(self) -> str:
        shown = f", {self._params}" if self._params else ""
        return f"{type(self).__name__}({self.algorithm!r}{shown})"

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        config = {"algorithm": self.algorithm, "params": dict(self._params)}
        return config | ({"strict": True} if self.strict else {})

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Create a scaler with initial state from the result of ``get_config``."""
        return cls(**config)
