"""The quirks of the originals by name: ``strict`` keeps them, the default does not.

Each field has the name of its section in docs/differences.md, which shows both
behaviours.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["DEFAULT", "STRICT", "Quirks", "quirks_of"]


@dataclass(frozen=True)
class Quirks:
    """Flags for the quirks of the originals; the text below a field describes it."""

    # All optimizers and wrappers

    arguments_unchecked: bool
    """Arguments and stacks of wrappers are not checked."""

    # Multitask wrapper and its clipping function

    multitask_in_place: bool
    """The update method of the wrapped optimizer itself is replaced permanently."""
    multitask_nesting: bool
    """The multitask and the loss-scaling wrapper cannot wrap a multitask wrapper."""
    multitask_shared_state: bool
    """Adam's powers of beta advance even if every gradient is zero."""
    multitask_subnormals: bool
    """Float32 subnormals are flushed to zero, also in the multitask clipping function
    and in products with a loss scale."""
    multitask_dense_shape: bool
    """A sparse gradient of a reference variable needs a dense shape."""
    multitask_clip_sparse: bool
    """Sparse gradients are refused."""
    multitask_clip_dtypes: bool
    """Gradients must all have one dtype, which may be any."""
    multitask_clip_float16: bool
    """The norm has the dtype of the gradients."""
    multitask_clip_range: bool
    """``clip_norm`` is not checked."""

    # Row clipping

    row_clip_subtracted: bool
    """A row's excess over the limit is subtracted from it; see the next four fields."""
    row_clip_below: bool
    """Rows below the limit are changed too, by a rounding error."""
    row_clip_duplicates: bool
    """The excess is subtracted k times if a sparse gradient lists a row k times."""
    row_clip_float16: bool
    """For float16 variables, the excess is computed in float16."""
    row_clip_subnormals: bool
    """Float32 subnormals of the excess and of the row are flushed to zero."""
    row_clip_axes: bool
    """A negative axis for dimension 0 is not resolved: its norm is over listed rows."""
    row_clip_range: bool
    """``max_norm`` is not checked, but cannot be a mapping."""
    row_clip_iterator: bool
    """Nothing is clipped if the pairs are a one-shot iterator."""
    row_clip_variables: bool
    """``variables()`` is empty."""

    # Loss scaling

    dynamic_scale_floor: bool
    """An overflow raises a scale below 1 to 1; only the original's options exist."""
    dynamic_scale_dense_shape: bool
    """Sparse gradients need a dense shape."""
    loss_scale_fixed: bool
    """With a fixed scale, non-finite gradients are applied."""
    loss_scale_float16: bool
    """Float16 variables and their float32 gradients are refused."""
    loss_scale_slots: bool
    """``get_slot`` returns None; ``get_slot_names`` and ``variables`` are empty."""
    backoff_range: bool
    """A NaN maximum is no overflow, and parameters are not checked."""
    logmax_overflow: bool
    """An overflow counts as 2^log_max, the target is 16, and a largest gradient of 0
    makes the scale NaN. The largest gradient must be float32."""

    # Float32 masters

    masters_scale_type: bool
    """The scale is not checked; one that is no float fails at its first use."""
    masters_absent: bool
    """An absent gradient of a variable with a master is refused."""
    masters_half_loss: bool
    """A float16 loss is refused under an automatic scale."""
    masters_twice: bool
    """A second call of ``compute_gradients`` in a graph creates a second set of
    masters."""
    masters_static_scale: bool
    """Only an automatic scaler skips steps, after its own check of the gradients."""
    masters_row_clipping: bool
    """Row clipping inside does not clip masters."""
    masters_slots: bool
    """A variable cannot be used in place of its master, in ``get_slot`` or in a pair
    with a gradient. Values written into it are overwritten."""

    masters_regularizer: bool
    """The regularizer's penalty at the master is also collected as a loss. On Keras the
    penalty of a float16 tensor that is no variable is 0."""

    # optimize_loss

    optimize_loss_dict: bool
    """AdamW's decay times the learning rate is written into the caller's dict."""
    optimize_loss_iter_size: bool
    """``iter_size`` is ignored without ``on_horovod``."""
    optimize_loss_flag: bool
    """Accumulation needs ``skip_update_ph``."""
    optimize_loss_accumulated: bool
    """Absent and sparse gradients cannot be accumulated."""
    optimize_loss_instance: bool
    """Optimizer instances are refused."""
    optimize_loss_scaler: bool
    """A named scaler is created for any dtype; a scale without effect is ignored."""
    optimize_loss_scale_summary: bool
    """The loss-scale summary is written only for named scalers."""
    optimize_loss_order: bool
    """The finite check comes after clipping."""

    # Accumulated gradient normalization

    agn_accumulator_start: bool
    """An accumulator holds the value of its variable until the init op has run."""
    agn_powers: bool
    """Local steps and pushes share the powers of beta; the center has none itself."""
    agn_iterator: bool
    """Pairs from a one-shot iterator are refused."""
    agn_row_clipping: bool
    """Row-clipping wrappers inside do not clip shared rows."""
    agn_slots: bool
    """``get_slot`` returns None; ``get_slot_names`` and ``variables`` are empty."""
    agn_workers: bool
    """The number of workers and the period are not checked."""
    agn_local_step: bool
    """The local step counter is placed on the current device, which may be shared."""
    agn_reference_variables: bool
    """A shared reference variable may be in another process."""
    agn_regularizer: bool
    """A regularizer's penalty is also collected for the shared variable and the
    accumulator."""

    # Base optimizers

    half_precision_scalars: bool
    """Rules compute in the dtype of the variable, and bfloat16 has no masters."""
    ftrl_nan: bool
    """The weight of a dense gradient of NaN becomes 0."""
    ftrl_zero_rate: bool
    """A rate of 0 fails."""

    # Clipping and LARC of OpenSeq2Seq

    clip_scalar: bool
    """A clipped scalar has shape [1], and iterators are refused."""
    clip_duplicates: bool
    """The norm does not sum rows that share an index."""
    clip_absent: bool
    """Absent gradients are refused."""
    clip_limit: bool
    """Limits, norms, rates and gradient shapes are not checked, but a rate that is a
    tensor must be float32."""
    larc_zero_norm: bool
    """A norm of 0 gives the ratio ``min_update``."""
    larc_sparse: bool
    """Sparse gradients become dense."""

    # NovoGrad

    novograd_second_moment: bool
    """The second moment is not stored, so it is the squared norm of this step."""
    novograd_limits: bool
    """The pairs must be a list, which is overwritten; None and float16 raise."""

    # Learning-rate policies

    policies_integer: bool
    """An integer rate is refused."""
    policies_float16: bool
    """``max_lr`` is refused unless the dtype is float32."""
    policies_cosine: bool
    """``min_lr`` is a fraction of the rate."""
    policies_inverse: bool
    """``begin_decay_at``, ``warmup_steps`` and the floor are ignored."""


STRICT = Quirks(**{field.name: True for field in fields(Quirks)})
"""The originals as recorded."""
DEFAULT = Quirks(**{field.name: False for field in fields(Quirks)})
"""No quirk."""


def quirks_of(strict: bool) -> Quirks:
    """Return ``STRICT`` or ``DEFAULT``; a test may have replaced ``STRICT``."""
    return STRICT if strict else DEFAULT
