"""The whole step."""

from __future__ import annotations

from lockstep.tests.kit import Cells

__all__ = ["PARALLEL", "SIGNATURES"]

SIGNATURES = {
    "get_regularization_loss": "scope=None, name='total_regularization_loss'",
    "optimize_loss": "loss, optimizer, optimizer_params, learning_rate_decay_fn, "
    "var_list=None, dtype='float32', clip_gradients=None, summaries=None, "
    "larc_params=None, loss_scaling=1.0, loss_scaling_params=None, on_horovod=False, "
    "iter_size=1, skip_update_ph=None, model=None",
    "reduce_gradients": "grads_and_vars, on_horovod, model=None",
}

PARALLEL: dict[str, Cells] = {
    "`optimize_loss`": (
        "[in DDP or instead of it](#the-whole-step)",
        "refused",
        "refused",
    ),
    "`compute_gradients`, `minimize`": (
        "with [`reduce_gradients`](clipping/larc.md#averaging-over-ranks)",
        "refused",
        "refused",
    ),
}
