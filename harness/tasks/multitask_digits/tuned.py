"""The answer for arms that each have their own best learning rate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from harness.judgement.finding import NO_ANSWER, Judgement
from harness.tasks.absent_heads.sentences import FIRST_SQUARE, of_comparison, of_law
from harness.tasks.absent_heads.tables import comparison
from harness.tasks.multitask_digits import tables
from harness.tasks.multitask_digits.metrics import METRICS

__all__ = ["judge"]

KERAS = (
    "Keras' Adam takes its bias correction from the steps of all variables. So with "
    "the wrapper the early updates of a rare head are larger on Keras 3, where rates "
    "were not chosen anew."
)


def judge(cells: Sequence[tables.Cell]) -> Judgement:
    """Make tables of the cells and state the answer."""
    frames = {
        "comparison": comparison(cells, lambda c: c.labels, METRICS["loss"].read),
        "losses": tables.losses(cells),
        "heads": tables.heads(cells),
        "curves": tables.curves(cells),
        "backends": tables.backends(cells),
    }
    answer = " ".join(of_comparison(frames["comparison"], "held-out loss"))
    return Judgement(answer or f"{NO_ANSWER}.", frames, _small_print(frames))


def _small_print(frames: Mapping[str, pd.DataFrame]) -> list[str]:
    backends = set(frames["comparison"]["backend"])
    of_keras = [KERAS] if "keras3" in backends else []
    return [
        *of_keras,
        "Loss is the mean of the three held-out losses at the end; a lower or higher "
        "one is counted where the whole interval of the ratio, paired by seed, lies on "
        "one side of 1. Intervals are bootstrapped over seeds (95%).",
        *of_law(frames["heads"]),
        "The law is that of a constant gradient in the second half of training. Real "
        "gradients shrink and change sign, and rates differ between the arms.",
        FIRST_SQUARE,
        "With the mean over present tasks, zeros are fed for absent ones as well.",
    ]
