"""Learning-rate policies for Keras optimizers.

The step may be a number, a tensor or a variable. A policy returns a tensor
(``fixed_lr``: its argument), in eager mode, in ``tf.function`` and under XLA. For
``fit`` and for files, :class:`lockstep.keras3.PolicySchedule` makes a policy the
schedule of an optimizer. A custom training loop may call it directly::

    rate = lr_policies.poly_decay(optimizer.iterations, 0.1, decay_steps=1000)

The origin of all of them is OpenSeq2Seq (NVIDIA),
``open_seq2seq/optimizers/lr_policies.py``. Steps of the optimizer count from 0.
"""

from lockstep.tf.shared.schedules.lr_policies import (
    cosine_decay,
    exp_decay,
    fixed_lr,
    inv_poly_decay,
    piecewise_constant,
    poly_decay,
    transformer_policy,
)

__all__ = [
    "cosine_decay",
    "exp_decay",
    "fixed_lr",
    "inv_poly_decay",
    "piecewise_constant",
    "poly_decay",
    "transformer_policy",
]
