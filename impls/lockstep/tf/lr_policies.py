"""Learning-rate policies of a step that is a number, a tensor or a variable.

They return a tensor (``fixed_lr``: its argument), in eager mode, in ``tf.function`` and
in graphs. A v1-style optimizer accepts a callable, which it calls at every step::

    global_step = tf.Variable(0, dtype=tf.int64)
    rate = lambda: lr_policies.poly_decay(global_step, 0.1, decay_steps=1000)
    optimizer = lockstep.tf.MomentumOptimizer(learning_rate=rate, momentum=0.9)
    optimizer.apply_gradients(pairs, global_step=global_step)

In a graph the tensor itself does as well. The origin of all of them is OpenSeq2Seq
(NVIDIA), ``open_seq2seq/optimizers/lr_policies.py``. Steps are optimizer steps, counted
from 0.
"""

from lockstep.tf.shared.lr_policies import (
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
