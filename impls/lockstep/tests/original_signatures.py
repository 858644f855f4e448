"""The originals' signatures, and what a backend may have beside them, as data."""

from __future__ import annotations

SIGNATURES: dict[str, str] = {
    "AGNCustomGetter": "worker_device",
    "AGNOptimizer": "optimizer, num_worker, custom_getter, communication_period=10, "
    "use_locking=True, name='AGNOptimizer'",
    "AdagradOptimizer": "learning_rate, initial_accumulator_value=0.1, "
    "use_locking=False, name='Adagrad'",
    "AdamOptimizer": "learning_rate=0.001, beta1=0.9, beta2=0.999, epsilon=1e-08, "
    "use_locking=False, name='Adam'",
    "AdamWOptimizer": "weight_decay, learning_rate=0.001, beta1=0.9, beta2=0.999, "
    "epsilon=1e-08, use_locking=False, name='AdamW'",
    "AutomaticLossScaler": "algorithm='Backoff', params=None",
    "DynamicLossScale": "initial_loss_scale=32768, increment_period=2000, "
    "multiplier=2.0",
    "FixedLossScale": "loss_scale_value",
    "FtrlOptimizer": "learning_rate, learning_rate_power=-0.5, "
    "initial_accumulator_value=0.1, l1_regularization_strength=0.0, "
    "l2_regularization_strength=0.0, use_locking=False, name='Ftrl', accum_name=None, "
    "linear_name=None, l2_shrinkage_regularization_strength=0.0",
    "GradientDescentOptimizer": "learning_rate, use_locking=False, "
    "name='GradientDescent'",
    "MixedPrecisionLossScaleOptimizer": "opt, loss_scale",
    "MixedPrecisionOptimizerWrapper": "optimizer, loss_scale=None",
    "MomentumOptimizer": "learning_rate, momentum, use_locking=False, name='Momentum', "
    "use_nesterov=False",
    "MultitaskOptimizerWrapper": "opt",
    "NovoGrad": "learning_rate=1.0, beta1=0.95, beta2=0.98, epsilon=1e-08, "
    "weight_decay=0.0, grad_averaging=False, use_locking=False, name='NovoGrad'",
    "RMSPropOptimizer": "learning_rate, decay=0.9, momentum=0.0, epsilon=1e-10, "
    "use_locking=False, centered=False, name='RMSProp'",
    "VariableClippingOptimizer": "opt, vars_to_clip_dims, max_norm, use_locking=False, "
    "colocate_clip_ops_with_vars=False, name='VariableClipping'",
    "clip_by_global_norm": "t_list, clip_norm, use_norm, name=None",
    "clip_gradients_by_global_norm": "gradients_variables, clip_norm=20.0",
    "clip_gradients_by_norm": "grads_and_vars, clip_gradients",
    "get_regularization_loss": "scope=None, name='total_regularization_loss'",
    "mp_regularizer_wrapper": "regularizer",
    "optimize_loss": "loss, optimizer, optimizer_params, learning_rate_decay_fn, "
    "var_list=None, dtype='float32', clip_gradients=None, summaries=None, "
    "larc_params=None, loss_scaling=1.0, loss_scaling_params=None, on_horovod=False, "
    "iter_size=1, skip_update_ph=None, model=None",
    "post_process_gradients": "grads_and_vars, summaries, lr, clip_gradients, "
    "larc_params",
    "reduce_gradients": "grads_and_vars, on_horovod, model=None",
    "lr_policies.cosine_decay": "global_step, learning_rate, decay_steps, power=1.0, "
    "begin_decay_at=0, min_lr=0.0, warmup_steps=0",
    "lr_policies.exp_decay": "global_step, learning_rate, decay_steps, decay_rate, "
    "use_staircase_decay, begin_decay_at=0, min_lr=0.0",
    "lr_policies.fixed_lr": "global_step, learning_rate",
    "lr_policies.inv_poly_decay": "global_step, learning_rate, decay_steps, min_lr, "
    "power=1.0, begin_decay_at=0, warmup_steps=0, name='learning_rate'",
    "lr_policies.piecewise_constant": "global_step, learning_rate, boundaries, "
    "decay_rates, steps_per_epoch=None",
    "lr_policies.poly_decay": "global_step, learning_rate, decay_steps, power=1.0, "
    "begin_decay_at=0, min_lr=0.0, warmup_steps=0",
    "lr_policies.transformer_policy": "global_step, learning_rate, d_model, "
    "warmup_steps, max_lr=None, coefficient=1.0, dtype='float32'",
}
"""Name -> arguments, from TensorFlow 1.15 and OpenSeq2Seq; policies come last."""

OURS = {"OPTIMIZER_CLS_NAMES", "OPTIMIZER_SUMMARIES", "lr_policies", "pipeline_of"}
"""Exports that are no class or function of the originals."""

RULES = [name for name in SIGNATURES if name.endswith("Optimizer")]
RULES = [*(n for n in RULES if "learning_rate" in SIGNATURES[n]), "NovoGrad"]

# torch makes an optimizer of parameters, and they come first.
BEFORE: dict[str, tuple[str, ...]] = {f"pytorch.{name}": ("params",) for name in RULES}
"""Arguments that come before the original's."""

BESIDE: dict[str, tuple[str, ...]] = {
    # Without a graph workers find no shared variables by their names.
    "AGNCustomGetter": ("center",),
    # These are TensorFlow 2's own, or derive from it.
    "tf.AdamOptimizer": ("use_own_namescope_for_non_slot_vars",),
    "tf.FtrlOptimizer": ("beta",),
    # Without a graph there are no collections of losses and summaries.
    "get_regularization_loss": ("losses",),
    "post_process_gradients": ("recorder",),
    # Horovod is not there; this averages in its place.
    "optimize_loss": ("reduction",),
    "reduce_gradients": ("reduction",),
    # NumPy has one rank.
    "reference.optimize_loss": (),
    "reference.reduce_gradients": (),
}
"""Arguments of strict names that come after the original's."""
