"""The results of a step as numbers by tag, for TensorBoard and other loggers.

Every wrapper that runs eagerly has ``step_numbers()``. A stack has the tags of all its
wrappers. A tag that ``optimize_loss`` also has means the same there.
"""

from __future__ import annotations

__all__ = [
    "CENTER_ROUNDS",
    "CLIPPED_ROWS",
    "ENDED_ROUND",
    "LOCAL_STEP",
    "PUSHED_BYTES",
    "ROWS",
    "SKIPPED_IN_A_ROW",
    "SKIPPED_STEPS",
    "STALENESS",
]

SKIPPED_STEPS, SKIPPED_IN_A_ROW = "skipped_steps", "skipped_in_a_row"
NORM, CLIP_FACTOR = "global_gradient_norm", "clip_factor"
ROWS, CLIPPED_ROWS = "rows", "clipped_rows"
LOCAL_STEP, ENDED_ROUND = "local_step", "ended_round"
CENTER_ROUNDS, STALENESS = "center_rounds", "staleness"
PUSHED_BYTES = "pushed_bytes"
