"""The quirks of the originals by name: what ``strict`` keeps and the default does not.

A field is called like its section of docs/differences.md, which shows what either does.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["DEFAULT", "STRICT", "Quirks", "quirks_of"]


@dataclass(frozen=True)
class Quirks:
    """Which quirks of the originals are on; the text below a field is the quirk."""

    # All optimizers and wrappers

    arguments_unchecked: bool
    """Arguments and stacks of wrappers are taken as they come, whatever they do."""

    # Multitask wrapper and its clipping function

    multitask_in_place: bool
    """The update of the wrapped optimizer itself is replaced, for good."""
    multitask_nesting: bool
    """The multitask wrapper is refused by itself and by the loss-scaling wrapper."""
    multitask_shared_state: bool
    """Adam's powers of beta advance also where every gradient is zero."""
    multitask_subnormals: bool
    """Float32 subnormals are zero, as in kernels that flush them; also in clipping by
    the multitask function and in products with a loss scale."""
    multitask_dense_shape: bool
    """A sparse gradient of a reference variable needs a dense shape."""
    multitask_clip_sparse: bool
    """Sparse gradients are refused."""
    multitask_clip_dtypes: bool
    """Gradients of several dtypes are refused, and any one dtype is taken."""
    multitask_clip_float16: bool
    """The norm has the dtype of the gradients."""
    multitask_clip_range: bool
    """Any ``clip_norm`` is taken."""

    # Row clipping

    row_clip_subtracted: bool
    """What is too much of a row is subtracted from it; the next four are about that."""
    row_clip_below: bool
    """It is subtracted from rows below the norm too, where it is a rounding error."""
    row_clip_duplicates: bool
    """It is subtracted from a row as often as a sparse gradient names the row."""
    row_clip_float16: bool
    """It is computed in float16."""
    row_clip_subnormals: bool
    """Its float32 subnormals are zero, and those of the row."""
    row_clip_axes: bool
    """Axes are not resolved: a negative one that means 0 is taken over named rows."""
    row_clip_range: bool
    """Any ``max_norm`` is taken, but no mapping."""
    row_clip_iterator: bool
    """Nothing is clipped if the pairs are a one-shot iterator."""
    row_clip_variables: bool
    """``variables()`` is empty."""

    # Loss scaling

    dynamic_scale_floor: bool
    """An overflow raises a scale below 1 to 1, and the original's options are all."""
    dynamic_scale_dense_shape: bool
    """Sparse gradients need a dense shape."""
    loss_scale_fixed: bool
    """A fixed scale applies gradients that are not finite."""
    loss_scale_float16: bool
    """Float16 variables are refused, and float32 gradients of them."""
    loss_scale_slots: bool
    """``get_slot``, ``get_slot_names`` and ``variables`` see nothing."""
    backoff_range: bool
    """A NaN maximum is no overflow, and any parameters are taken."""
    logmax_overflow: bool
    """An overflow counts as 2^log_max, the target is 16, a zero makes the scale NaN;
    the largest gradient has to be float32."""

    # Float32 masters

    masters_scale_type: bool
    """Anything is taken as a scale, and fails at its first use if it is no float."""
    masters_absent: bool
    """An absent gradient of a variable with a master is refused."""
    masters_half_loss: bool
    """A float16 loss is refused under an automatic scale."""
    masters_twice: bool
    """A second call of ``compute_gradients`` in a graph makes second masters."""
    masters_static_scale: bool
    """Only an automatic scaler skips steps, by its own look at the gradients."""
    masters_row_clipping: bool
    """Row clipping inside does not clip masters."""
    masters_slots: bool
    """A variable does not stand for its master: not in ``get_slot``, not where it is
    paired with a gradient, and what is written into it is overwritten."""

    masters_regularizer: bool
    """The regularizer's penalty at the master is collected as a loss too; on Keras the
    penalty of a float16 tensor that is no variable is 0."""

    # optimize_loss

    optimize_loss_dict: bool
    """AdamW's decay times the rate is written into the caller's dict."""
    optimize_loss_iter_size: bool
    """``iter_size`` is ignored without ``on_horovod``."""
    optimize_loss_flag: bool
    """Accumulation needs ``skip_update_ph``."""
    optimize_loss_accumulated: bool
    """Absent and sparse gradients cannot be accumulated."""
    optimize_loss_instance: bool
    """An optimizer that is made already is refused."""
    optimize_loss_scaler: bool
    """A named scaler is made for any dtype, and a scale without effect is ignored."""
    optimize_loss_scale_summary: bool
    """The summary of the loss scale is written for named scalers alone."""
    optimize_loss_order: bool
    """The look for infinities comes after clipping."""

    # Accumulated gradient normalization

    agn_accumulator_start: bool
    """Until the init op has run an accumulator holds the value of its variable."""
    agn_powers: bool
    """The center has no powers of beta of its own: those of all steps and pushes."""
    agn_iterator: bool
    """Pairs from a one-shot iterator are refused."""
    agn_row_clipping: bool
    """Row clipping inside does not clip the shared rows."""
    agn_slots: bool
    """``get_slot``, ``get_slot_names`` and ``variables`` see nothing."""
    agn_workers: bool
    """Any number of workers and any period is taken."""
    agn_local_step: bool
    """The count of local steps is on the device around it, which workers may share."""
    agn_reference_variables: bool
    """A shared reference variable may lie in another process."""
    agn_regularizer: bool
    """A regularizer's penalty is collected for the shared variable and the accumulator
    too."""

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
    """The norm counts rows of one index one by one, without their sum."""
    clip_absent: bool
    """Absent gradients are refused."""
    clip_limit: bool
    """Any limit, norm and rate is taken, and gradients of any shape; a rate that is a
    tensor has to be float32."""
    larc_zero_norm: bool
    """A norm of 0 gives the ratio ``min_update``."""
    larc_sparse: bool
    """Sparse gradients become dense."""

    # NovoGrad

    novograd_second_moment: bool
    """The second moment is not stored, so it is the norm of the step."""
    novograd_limits: bool
    """The pairs are a list, which is written into; absent ones and float16 fail."""

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
