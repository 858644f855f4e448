"""The answer, computed: which scales match float32, and how each takes an overflow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.claims import (
    NO_ANSWER,
    Claim,
    Holds,
    all_hold,
    both,
    joined,
    listed,
    verdict_of,
)
from harness.finding import Judgement
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.deep_digits import tables
from harness.tasks.deep_digits.settings import Settings

__all__ = ["APART", "base_of", "claimed", "floor_of", "judge", "match", "scaled_of"]

APART = ("method.label",)
"""The settings by which the tables tell runs apart."""

SLACK = 0.05
"""How far intervals of a loss may miss each other: those of few seeds are narrow."""

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
    return Judgement(
        answer=_answer(made, settings),
        verdict=verdict_of(claims),
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
) -> list[Claim]:
    """Return each claim with whether it holds on every host; the first is the main."""
    scaled, windows = scaled_of(settings), _windows(settings)
    recovery = _column(made["overflows"], "recovery")
    logmax = [m for m in scaled if settings[m].scale == "LogMax" and m in recovery]
    backing = {m: steps for m, steps in windows.items() if m in recovery}
    longest = max((recovery[label] for label in backing), default=np.nan)
    return [
        (
            "float16 with a scaled loss ends at float32's loss, whichever scale it is",
            _ends_with_base(made["losses"], settings, scaled),
        ),
        (
            "float16 without a scale does not",
            _ends_above_base(made["losses"], settings),
        ),
        (
            "without a scale most gradients are 0 in float16, with one hardly any",
            _flushes(made, settings, scaled),
        ),
        (
            "after one overflow dynamic and Backoff are back in a window of steps",
            all_hold([recovery[label] <= steps for label, steps in backing.items()]),
        ),
        (
            "LogMax needs longer than they do",
            all_hold([recovery[label] > longest for label in logmax if backing]),
        ),
        (
            "under strict one infinity pins LogMax at its minimum for about 11000 "
            "updates",
            all_hold([PINNED[0] < n < PINNED[1] for n in _pinned(made, settings)]),
        ),
    ]


def _ends_with_base(
    losses: pd.DataFrame, settings: Mapping[str, Settings], scaled: Sequence[str]
) -> Holds:
    base = base_of(settings)
    return all_hold(
        [
            overlap(of[base], of[method], SLACK)
            for of in _by_host(losses)
            for method in scaled
            if base in of and method in of
        ]
    )


def _ends_above_base(losses: pd.DataFrame, settings: Mapping[str, Settings]) -> Holds:
    base, floor = base_of(settings), floor_of(settings)
    return all_hold(
        [
            of[floor].low > of[base].high * (1 + SLACK)
            for of in _by_host(losses)
            if base in of and floor in of
        ]
    )


def base_of(settings: Mapping[str, Settings]) -> str:
    """Return the first float32 method without a scale; an empty text if none is."""
    plain = (m for m, each in settings.items() if _is_plain(each, "float32"))
    return next(plain, "")


def floor_of(settings: Mapping[str, Settings]) -> str:
    """Return the first float16 method without a scale; an empty text if none is."""
    plain = (m for m, each in settings.items() if _is_plain(each, "float16"))
    return next(plain, "")


def _is_plain(settings: Settings, dtype: str) -> bool:
    return settings.dtype == dtype and settings.scale == "none"


def scaled_of(settings: Mapping[str, Settings]) -> list[str]:
    """Return the methods that should match: float16, scaled, and not the quirk."""
    return [
        label
        for label, each in settings.items()
        if each.dtype == "float16" and each.scale != "none" and not each.strict
    ]


def _windows(settings: Mapping[str, Settings]) -> dict[str, int]:
    """Return the steps between two growths of the scales that grow in that way."""
    names = {"dynamic": "increment_period", "Backoff": "step_window"}
    return {
        label: int(each.arguments.get(names[each.scale], 2000))
        for label, each in settings.items()
        if each.scale in names and not each.strict
    }


def _flushes(
    made: Mapping[str, pd.DataFrame],
    settings: Mapping[str, Settings],
    scaled: Sequence[str],
) -> Holds:
    """More than half by the law and in the runs; with a scale, under one in twenty."""
    underflow, scales = made["underflow"], made["scales"]
    by_law = underflow[underflow["scale_log2"] == 0]["flushed_low"]
    columns = ["zero_weights", "zero_activations"]
    without = scales[scales["method"] == floor_of(settings)][columns]
    others = scales[scales["method"].isin(scaled)][columns]
    return both(
        all_hold(by_law > 0.5), all_hold(without > 0.5), all_hold(others < 0.05)
    )


def _pinned(
    made: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[float]:
    """Return the updates that one infinity costs each LogMax with the quirk."""
    pinned = _column(made["overflows"], "pinned")
    return [
        pinned[label]
        for label, each in settings.items()
        if each.strict and each.scale == "LogMax" and label in pinned
    ]


def _by_host(losses: pd.DataFrame) -> list[dict[str, Interval]]:
    hosts = dict.fromkeys(losses["host"])
    return [_intervals(losses[losses["host"] == host]) for host in hosts]


def _intervals(losses: pd.DataFrame) -> dict[str, Interval]:
    return {str(row["method"]): _loss(row) for _, row in losses.iterrows()}


def _column(table: pd.DataFrame, name: str) -> dict[str, float]:
    """Return a column by method, of the first row of each."""
    once = table.drop_duplicates("method")
    values = once[name].astype(float)
    return dict(zip(once["method"].astype(str), values, strict=True))


# -- sentences -------------------------------------------------------------------------


def _answer(made: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]) -> str:
    clauses = []
    ends = ", ".join(_ends(made["losses"], settings))
    if ends:
        clauses.append(f"held-out losses end at {ends}")
    recovery = _column(made["overflows"], "recovery")
    costs = [
        f"{settings[label].scale} {_steps(steps)}"
        for label, steps in recovery.items()
        if not settings[label].strict
    ]
    if costs:
        clauses.append(f"one overflow costs {', '.join(costs)}")
    for updates in _pinned(made, settings)[:1]:
        where = f"at its minimum for {updates:.0f} updates"
        clauses.append(f"an overflow pins the original's LogMax {where}")
    text = "; ".join(clauses) or NO_ANSWER
    return f"{text[:1].upper()}{text[1:]}."


def _ends(losses: pd.DataFrame, settings: Mapping[str, Settings]) -> Iterator[str]:
    """Quote where float32, scaled and unscaled float16 end, on the first host."""
    ends = _column(losses, "loss")
    base, floor = base_of(settings), floor_of(settings)
    scaled = [ends[label] for label in scaled_of(settings)]
    if base:
        yield f"{ends[base]:.3f} in float32"
    if scaled:
        yield (
            f"between {min(scaled):.3f} and {max(scaled):.3f} in float16 with a scaled "
            "loss"
        )
    if floor:
        yield f"{ends[floor]:.3f} in float16 without a scale"


def _steps(steps: float) -> str:
    return f"{steps:.0f} steps" if np.isfinite(steps) else "more than all that followed"


def _small_print(
    made: Mapping[str, pd.DataFrame],
    claims: Sequence[Claim],
    settings: Mapping[str, Settings],
) -> list[str]:
    first = next(iter(settings.values()))
    windows = joined([str(n) for n in dict.fromkeys(_windows(settings).values())])
    sentences = [*listed(claims), *_of_zeros(made, settings)]
    sentences += _of_the_quirk(made["scales"], settings)
    sentences += [
        f"The loss is multiplied by 2^{first.loss_log2} and the rate divided by it: "
        "nothing changes in float32. A scale here is as good as one smaller by that "
        "factor for a loss that is left alone.",
        f"Every run has one infinite loss, at step {first.overflow}; all skip it.",
        *(
            [
                f"Dynamic and Backoff grow every {windows} steps; recovery takes them "
                "one such window, by custom 2000 steps."
            ]
            if windows
            else []
        ),
        "Recovery: until the scale is above half of what it was, each scaler by "
        "itself, with gradients of one size that do not overflow but once.",
        "All weights have float32 masters. Median over seeds, intervals bootstrapped "
        "over them (95 %); splits, batches and first weights of a seed are the same "
        "in every run.",
    ]
    return sentences


def _of_zeros(
    made: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> Iterator[str]:
    """Compare the law of float16's limits with the gradients that were 0."""
    at_one = made["underflow"][made["underflow"]["scale_log2"] == 0]
    law = dict(zip(at_one["gradients"], at_one["flushed"].astype(float), strict=True))
    floor = floor_of(settings)
    for kind in law if floor else ():
        share = _column(made["scales"], f"zero_{kind}")[floor]
        yield (
            f"Of the float32 gradients of {kind}, {law[kind]:.0%} are too small for "
            f"float16; in float16 without a scale {share:.0%} were 0."
        )


def _of_the_quirk(scales: pd.DataFrame, settings: Mapping[str, Settings]) -> list[str]:
    """Say what else became of the scaler with the quirks, on each host."""
    strict = [label for label, each in settings.items() if each.strict]
    return [
        f"{row['method']} on {row['host']}: in {row['pinned']} of {row['runs']} runs "
        "an overflow of its own had pinned the scale before the injected one; in "
        f"{row['nan']} it ended as NaN, after a step whose gradients all were 0."
        for _, row in scales[scales["method"].isin(strict)].iterrows()
    ]
