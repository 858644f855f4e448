"""Paired effects, intervals and exact tests: the statistics of all experiments.

All functions are pure. Random draws have a fixed seed, so the same records always give
the same digits. A diverged run has an infinite metric. It counts as the worst, and no
function here turns it into NaN.
"""

from harness.statistics.effects import (
    Effect,
    Floats,
    median,
    paired_effects,
    ratio_of_sums,
    steps_to_target,
)
from harness.statistics.intervals import (
    Interval,
    bootstrap,
    t_interval,
)
from harness.statistics.sign_tests import Side, beyond, holm, sign_flip, within

__all__ = [
    "Effect",
    "Floats",
    "Interval",
    "Side",
    "beyond",
    "bootstrap",
    "holm",
    "median",
    "paired_effects",
    "ratio_of_sums",
    "sign_flip",
    "steps_to_target",
    "t_interval",
    "within",
]
