"""The signatures of TensorFlow 1's optimizers and of NovoGrad, for strict modules.

Bodies are empty because :mod:`lockstep.strict.binding` forwards the arguments.
"""

from __future__ import annotations

from typing import Any

from lockstep.strict.binding import forwards

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "NovoGrad",
    "RMSPropOptimizer",
]


class AdagradOptimizer:
    """``tf.train.AdagradOptimizer``."""

    @forwards
    def __init__(
        self,
        learning_rate: Any,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str = "Adagrad",
    ) -> None: ...


class AdamOptimizer:
    """``tf.train.AdamOptimizer``."""

    @forwards
    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None: ...


class AdamWOptimizer:
    """``tf.contrib.opt.AdamWOptimizer``."""

    @forwards
    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None: ...


class FtrlOptimizer:
    """``tf.train.FtrlOptimizer``."""

    @forwards
    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None: ...


class GradientDescentOptimizer:
    """``tf.train.GradientDescentOptimizer``."""

    @forwards
    def __init__(
        self,
        learning_rate: Any,
        use_locking: bool = False,
        name: str = "GradientDescent",
    ) -> None: ...


class MomentumOptimizer:
    """``tf.train.MomentumOptimizer``."""

    @forwards
    def __init__(
        self,
        learning_rate: Any,
        momentum: float,
        use_locking: bool = False,
        name: str = "Momentum",
        use_nesterov: bool = False,
    ) -> None: ...


class NovoGrad:
    """``NovoGrad`` of OpenSeq2Seq."""

    @forwards
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
    ) -> None: ...


class RMSPropOptimizer:
    """``tf.train.RMSPropOptimizer``."""

    @forwards
    def __init__(
        self,
        learning_rate: Any,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str = "RMSProp",
    ) -> None: ...
