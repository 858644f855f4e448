"""What works in data-parallel training: rows of the page, which tests try."""

from __future__ import annotations

Cells = tuple[str, str, str]
"""What happens in DDP, FSDP2 and tensor parallelism."""

EVERYWHERE: Cells = ("right", "right", "right")
WHOLE_ONLY: Cells = ("right", "refused", "refused")

PARALLEL: dict[str, Cells] = {
    "`MultitaskOptimizerWrapper`": EVERYWHERE,
    "`MixedPrecisionLossScaleOptimizer`": EVERYWHERE,
    "`DynamicLossScale`, `AutomaticLossScaler`": EVERYWHERE,
    "`MixedPrecisionOptimizerWrapper`": WHOLE_ONLY,
    "`VariableClippingOptimizer`, rows whole": EVERYWHERE,
    "`VariableClippingOptimizer`, rows split": WHOLE_ONLY,
    "`NovoGrad`": EVERYWHERE,
    "the optimizers of TensorFlow 1": EVERYWHERE,
    "`clip_gradients_by_global_norm`, `clip_by_global_norm`, "
    "`clip_gradients_by_norm`": EVERYWHERE,
    "`post_process_gradients` with LARC": EVERYWHERE,
    "`capturable=True`": WHOLE_ONLY,
    "`AGNOptimizer`": WHOLE_ONLY,
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
