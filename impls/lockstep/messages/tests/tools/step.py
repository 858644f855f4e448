"""The whole step."""

from __future__ import annotations

__all__ = ["SIGNATURES"]

SIGNATURES = {
    "get_regularization_loss": "scope=None, name='total_regularization_loss'",
    "optimize_loss": "loss, optimizer, optimizer_params, learning_rate_decay_fn, "
    "var_list=None, dtype='float32', clip_gradients=None, summaries=None, "
    "larc_params=None, loss_scaling=1.0, loss_scaling_params=None, on_horovod=False, "
    "iter_size=1, skip_update_ph=None, model=None",
    "reduce_gradients": "grads_and_vars, on_horovod, model=None",
}
