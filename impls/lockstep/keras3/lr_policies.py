"""Learning-rate policies for Keras optimizers.

The step may be a number, a tensor or a variable. A policy returns a tensor
(``fixed_lr``: its argument), in eager mode, in ``tf.function`` and under XLA. For
``fit`` and for files, :class:`lockstep.keras3.PolicySchedule` makes a policy the
schedule of an optimizer. A custom training loop may call it directly::

    rate = lr_policies.poly_decay(optimizer.iterations, 0.1, decay_steps=1000)

The origin of all of them is OpenSeq2Seq (NVIDIA),
``open_seq2seq/optimizers/lr_policies.py``. Steps of the optimizer count from 0.
"""

from __future__ import annotations

import sys
from typing import Any

import keras
import numpy as np

from lockstep.checks import dtype_name
from lockstep.errors import DtypeError
from lockstep.keras3.gradients import value_of
from lockstep.policies import bind
from lockstep.tf.shared.lr_policies import (
    cosine_decay,
    exp_decay,
    fixed_lr,
    inv_poly_decay,
    piecewise_constant,
    poly_decay,
    transformer_policy,
)

# The policies of this module, without the schedule.
__all__ = [
    "cosine_decay",
    "exp_decay",
    "fixed_lr",
    "inv_poly_decay",
    "piecewise_constant",
    "poly_decay",
    "transformer_policy",
]


@keras.saving.register_keras_serializable(package="lockstep")
class PolicySchedule(keras.optimizers.schedules.LearningRateSchedule):
    """The rate of a policy at every step: lr = policy(iterations, ...).

    ``iterations`` counts the calls of ``apply`` so far, from 0. The rate depends only
    on it, so a run that resumes from a ``.keras`` file continues exactly.

    Args:
        policy: the name of a policy of :mod:`lockstep.keras3.lr_policies`.
        parameters: the policy's arguments, including ``learning_rate``: numbers, lists
            and names, because they are saved in files.

    Raises:
        DtypeError: a TypeError; ``policy`` is no name.
        UnknownNameError: a ValueError; no policy or parameter has this name (the
            message has the nearest one).
        OutOfRangeError: a ValueError; a parameter is missing or outside of its range.

    Origin: OpenSeq2Seq's policies, which it used with TensorFlow 1's optimizers.

    Example:
        >>> rate = PolicySchedule("poly_decay", learning_rate=0.5, decay_steps=4)
        >>> opt = keras.optimizers.SGD(rate)
        >>> w = keras.Variable(1.0)
        >>> for _ in range(3):
        ...     opt.apply([keras.ops.array(1.0)], [w])
        >>> float(opt.learning_rate), float(w)
        (0.125, -0.125)
    """

    def __init__(self, policy: str, **parameters: Any) -> None:
        if not isinstance(policy, str):
            raise DtypeError(
                "PolicySchedule: policy: expected the name of a policy, got "
                f"{policy!r}; pass 'poly_decay', for example."
            )
        bound = bind(policy, parameters)
        self.policy = policy
        self.parameters = {name: plain(name, value) for name, value in bound.items()}
        self(0)

    def __call__(self, step: Any) -> Any:
        """Return the policy's rate at ``step``, usually a float32 tensor."""
        policy = getattr(sys.modules[__name__], self.policy)
        return policy(value_of(step), **self.parameters)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        return {"policy": self.policy, **self.parameters}


def plain(name: str, value: Any) -> Any:
    """Convert a parameter for a file: to a number, a list or a name."""
    if name == "dtype":
        return dtype_name(value)
    if isinstance(value, list | tuple):
        return [plain(name, part) for part in value]
    return np.asarray(value).tolist() if hasattr(value, "dtype") else value
