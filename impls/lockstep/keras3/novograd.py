"""NovoGrad as a Keras optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.keras3.gradients import value_of
from lockstep.keras3.optimizers import RuleOptimizer, registered
from lockstep.optimizers import NOVOGRAD
from lockstep.tf.shared.gradients import densify

MOMENTUM, MOMENT = "momentum", "second_moment"


@registered
class NovoGrad(RuleOptimizer, keras.optimizers.Optimizer):
    """Momentum of gradients, each divided by a running norm of its tensor.

        v = b2 v + (1 - b2) |g|^2, at first |g|^2; g' = g / sqrt(v + eps) + wd w;
        a = b1 a + g', or b1 a + (1 - b1) g' averaged; w -= lr a.

    There is one v per tensor, so half of Adam's state. Sparse gradients are made dense,
    because momentum decays on every row. A v that is 0 or not finite is replaced by the
    next |g|^2. Norms are computed in float32 for half precision.
    ``exclude_from_weight_decay`` excludes variables from wd.

    Args:
        learning_rate: lr >= 0; a number, a ``LearningRateSchedule`` or a callable.
        beta1: b1, decay of a, in [0, 1).
        beta2: b2, decay of v, in [0, 1).
        epsilon: eps >= 0, inside of the root.
        weight_decay: wd >= 0, multiplied by the rate and subject to momentum.
        grad_averaging: multiply g', its decay included, by 1 - b1.
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        options: the options of every Keras optimizer (``clipnorm``, ``use_ema``, ...).

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``momentum``, initially 0; ``second_moment`` for v, a 0-d float32 variable,
    initially 0.

    Origin: OpenSeq2Seq, ``open_seq2seq.optimizers.novograd.NovoGrad``; Ginsburg et al.,
    2019 (arXiv 1905.11286). The original's v is |g|^2 of the step, whatever b2 is.

    Example:
        >>> weight = keras.Variable([1.0, 1.0])
        >>> optimizer = NovoGrad(learning_rate=0.5)
        >>> _ = optimizer.apply_gradients([(tf.constant([0.0, 4.0]), weight)])
        >>> float(optimizer.get_slot(weight, "second_moment")), weight.numpy().tolist()
        (16.0, [1.0, 0.5])
    """

    spec = NOVOGRAD

    def __init__(
        self,
        learning_rate: Any = 1.0,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str = "NovoGrad",
        **options: Any,
    ) -> None:
        super().__init__(locals())

    def build(self, variables: Sequence[Any]) -> None:
        """Create the slots."""
        if self.built:
            return
        super().build(variables)
        for variable in variables:
            self.add_variable_from_reference(variable, MOMENTUM)
            self.add_variable_from_reference(variable, MOMENT)

    def _slot_layout(self, variable: Any, name: str) -> tuple[Any, str] | None:
        """Return shape and dtype of a second moment: 0-d, at least float32."""
        return ((), wide_dtype(variable).name) if name == MOMENT else None

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update the slots and the weights of a variable."""
        weight, wide = value_of(variable), wide_dtype(variable)
        slots, given = self._slots.of(variable), self.bound
        momentum, stored = value_of(slots[MOMENTUM]), value_of(slots[MOMENT])
        beta1, beta2 = given["beta1"], given["beta2"]
        dense = densify(gradient, variable)
        gradient, before = tf.cast(dense, wide), stored.read_value()
        square = tf.reduce_sum(tf.square(gradient))
        kept, added = (tf.cast(share, wide) for share in (beta2, 1 - beta2))
        begun = tf.logical_and(before > 0, tf.math.is_finite(before))
        moment = tf.where(begun, before * kept + square * added, square)
        factor = 1.0 / tf.sqrt(moment + tf.cast(given["epsilon"], wide))
        direction = gradient * factor
        if given["weight_decay"] > 0 and self._use_weight_decay(variable):
            decay = tf.cast(given["weight_decay"], wide)
            direction += decay * tf.cast(weight, wide)
        if given["grad_averaging"]:
            direction *= tf.cast(1 - beta1, wide)
        stored.assign(moment)
        momentum.assign(
            momentum * tf.cast(beta1, weight.dtype) + tf.cast(direction, dense.dtype)
        )
        weight.assign_sub(momentum * tf.cast(value_of(learning_rate), weight.dtype))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        own = {k: v for k, v in self.bound.items() if k != "learning_rate"}
        return {**super().get_config(), **own}


def wide_dtype(variable: Any) -> tf.DType:
    """Return the dtype in which norms are computed: at least float32."""
    return tf.float64 if value_of(variable).dtype == tf.float64 else tf.float32
