"""The answer, computed: which scales match float32, and how each takes an overflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.finding import Judgement
from harness.record import Record
from harness.stats import Interval, overlap
from harness.tables import all_hold
from harness.tasks.deep_digits import tables
from harness.tasks.deep_digits.settings import Settings

__all__ = ["claimed", "judge", "match"]

SLACK = 0.05
"""How far intervals of a loss may miss each other: those of few seeds are narrow."""

FLOOR = "fp16, no scale"
BASE = "fp32"
PINNED = (9_000, 13_000)
"""Updates that one infinity pins the original's LogMax: 'about 11,000'."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, judge the claims by them and say the answer."""
    cells = tables.cells(records)
    made = {
        "losses": tables.losses(cells),
        "scales": tables.scales(cells),
        "overflows": tables.overflows(cells),
        "underflow": tables.underflow(cells),
        "histogram": tables.histograms(cells),
        "curves": tables.curves(cells),
    }
    settings = {cell.settings.label: cell.settings for cell in cells}
    claims = claimed(made, settings)
    verdict = "not supported"
    if claims[0][1]:
        verdict = "reproduced" if all(holds for _, holds in claims) else "partly"
    return Judgement(
        answer=_answer(made, settings),
        verdict=verdict,
        tables=made,
        small_print=_small_print(made, claims, settings),
    )


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's losses with the published ones, at the same scale of runs."""
    keys = ["method", "host"]
    both = published["losses"].merge(
        own["losses"], on=keys, suffixes=("_published", "_own")
    )
    agree = [
        overlap(_loss(row, "_published"), _loss(row, "_own"), SLACK)
        for _, row in both.iterrows()
    ]
    columns = [f"loss{part}_{whose}" for whose in ("published", "own") for part in ENDS]
    return both[[*keys, *columns]].assign(matches=agree)


ENDS = ("", "_low", "_high")


def _loss(row: pd.Series, suffix: str = "") -> Interval:
    return Interval(*(np.asarray(row[f"loss{part}{suffix}"]) for part in ENDS))


# -- claims ----------------------------------------------------------------------------


def claimed(
    made: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[tuple[str, bool]]:
    """Return each claim with whether it holds on every host; the first is the main."""
    scaled, windows = _scaled(settings), _windows(settings)
    recovery = _column(made["overflows"], "recovery")
    logmax = [label for label in scaled if settings[label].scale == "LogMax"]
    backing = [recovery[label] for label in windows]
    losses = made["losses"]
    hosts = list(dict.fromkeys(losses["host"]))
    ends = [_intervals(losses[losses["host"] == host]) for host in hosts]
    return [
        (
            "float16 with a scaled loss ends at float32's loss, whichever scale it is",
            all_hold([overlap(of[BASE], of[m], SLACK) for of in ends for m in scaled]),
        ),
        (
            "float16 without a scale does not",
            all_hold([of[FLOOR].low > of[BASE].high * (1 + SLACK) for of in ends]),
        ),
        (
            "without a scale most gradients are 0 in float16, with one hardly any",
            _flushes(made["underflow"], made["scales"], scaled),
        ),
        (
            "after one overflow dynamic and Backoff are back in a window of steps",
            all_hold([recovery[label] <= steps for label, steps in windows.items()]),
        ),
        (
            "LogMax needs longer than they do",
            all_hold([recovery[label] > max(backing) for label in logmax]),
        ),
        (
            "under strict one infinity pins LogMax at its minimum for about 11000 "
            "updates",
            PINNED[0] < _pinned(made["overflows"], settings) < PINNED[1],
        ),
    ]


def _scaled(settings: Mapping[str, Settings]) -> list[str]:
    """Return the methods that should match: scaled, and not the quirk."""
    return [
        label
        for label, each in settings.items()
        if each.scale != "none" and not each.strict
    ]


def _windows(settings: Mapping[str, Settings]) -> dict[str, int]:
    """Return the steps between two growths of the scales that grow in that way."""
    names = {"dynamic": "increment_period", "Backoff": "step_window"}
    return {
        label: int(each.arguments.get(names[each.scale], 2000))
        for label, each in settings.items()
        if each.scale in names
    }


def _flushes(
    underflow: pd.DataFrame, scales: pd.DataFrame, scaled: Sequence[str]
) -> bool:
    """More than half by the law and in the runs; with a scale, under one in twenty."""
    by_law = underflow[underflow["scale_log2"] == 0]["flushed_low"]
    columns = ["zero_weights", "zero_activations"]
    without = scales[scales["method"] == FLOOR][columns]
    others = scales[scales["method"].isin(scaled)][columns]
    return (
        all_hold(by_law > 0.5) and all_hold(without > 0.5) and all_hold(others < 0.05)
    )


def _pinned(overflows: pd.DataFrame, settings: Mapping[str, Settings]) -> float:
    """Return the updates that one infinity costs the scaler with the quirk."""
    pinned = _column(overflows, "pinned")
    return next(pinned[label] for label, each in settings.items() if each.strict)


def _intervals(losses: pd.DataFrame) -> dict[str, Interval]:
    return {str(row["method"]): _loss(row) for _, row in losses.iterrows()}


def _column(table: pd.DataFrame, name: str) -> dict[str, float]:
    """Return a column by method, of the first row of each."""
    once = table.drop_duplicates("method")
    values = once[name].astype(float)
    return dict(zip(once["method"].astype(str), values, strict=True))


# -- sentences -------------------------------------------------------------------------


def _answer(made: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]) -> str:
    ends = _column(made["losses"], "loss")
    scaled = [ends[label] for label in _scaled(settings)]
    recovery = _column(made["overflows"], "recovery")
    costs = [
        f"{settings[label].scale} {steps:.0f} steps"
        for label, steps in recovery.items()
        if not settings[label].strict
    ]
    pinned = _pinned(made["overflows"], settings)
    return (
        f"float32 ends at a held-out loss of {ends[BASE]:.3f}, float16 with a scaled "
        f"loss between {min(scaled):.3f} and {max(scaled):.3f}, without a scale at "
        f"{ends[FLOOR]:.3f}; one overflow costs {', '.join(costs)}, and pins the "
        f"original's LogMax at its minimum for {pinned:.0f} updates."
    )


def _small_print(
    made: Mapping[str, pd.DataFrame],
    claims: Sequence[tuple[str, bool]],
    settings: Mapping[str, Settings],
) -> list[str]:
    first = next(iter(settings.values()))
    windows = " and ".join(map(str, dict.fromkeys(_windows(settings).values())))
    sentences = [
        f"{'Holds' if holds else 'Does not hold'}: {claim}." for claim, holds in claims
    ]
    at_one = made["underflow"][made["underflow"]["scale_log2"] == 0]
    law = dict(zip(at_one["gradients"], at_one["flushed"].astype(float), strict=True))
    for kind in tables.KINDS:
        seen = _column(made["scales"], f"zero_{kind}")[FLOOR]
        sentences.append(
            f"Of the float32 gradients of {kind}, {law[kind]:.0%} are too small for "
            f"float16; in float16 without a scale {seen:.0%} were 0."
        )
    sentences += _of_the_quirk(made["scales"], settings)
    sentences += [
        f"The loss is multiplied by 2^{first.loss_log2} and the rate divided by it: "
        "nothing changes in float32. A scale here is as good as one smaller by that "
        "factor for a loss that is left alone.",
        f"Every run has one infinite loss, at step {first.overflow}; all skip it.",
        f"Dynamic and Backoff grow every {windows} steps, so that short runs show it; "
        "recovery takes them one such window, by custom 2000 steps.",
        "Recovery: until the scale is above half of what it was, each scaler by "
        "itself, with gradients of one size that do not overflow but once.",
        "All weights have float32 masters. Median over seeds, intervals bootstrapped "
        "over them (95 %); splits, batches and first weights of a seed are the same "
        "in every run.",
    ]
    return sentences


def _of_the_quirk(scales: pd.DataFrame, settings: Mapping[str, Settings]) -> list[str]:
    """Say what else became of the scaler with the quirks, on each host."""
    strict = [label for label, each in settings.items() if each.strict]
    return [
        f"{row['method']} on {row['host']}: in {row['pinned']} of {row['runs']} runs "
        "an overflow of its own had pinned the scale before the injected one; in "
        f"{row['nan']} it ended as NaN, after a step whose gradients all were 0."
        for _, row in scales[scales["method"].isin(strict)].iterrows()
    ]
