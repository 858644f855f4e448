"""Compute the answer: float16's final loss against float32's, and scale recovery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement, joined
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tasks.checks import Check, Holds, all_hold, both, listed
from harness.tasks.deep_digits import tables
from harness.tasks.deep_digits.settings import Settings

__all__ = ["APART", "METRICS", "checks", "floor_of", "judge", "match", "scaled_of"]

APART = ("method.label",)
"""The settings that distinguish runs in the tables."""

METRICS = {
    "loss": Metric(
        lambda r: r.series["loss"][-1] if r.status == "ok" else np.inf,
        "nats",
        "smaller",
    ),
}
"""The metrics by which runs are compared: the held-out loss at the end."""

SLACK = 0.05
"""The largest distance of intervals of a loss, because few seeds make them narrow."""

USUAL_WINDOW = 2000
"""The default steps between two increases of a scale, of dynamic and Backoff."""

PINNED = (9_000, 13_000)
"""Updates for which one infinity pins the original's LogMax: about 11,000."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check them and state the answer."""
    cells = tables.cells(records)
    frames = {
        "losses": tables.losses(cells),
        "scales": tables.scales(cells),
        "simulation": tables.simulation(cells),
        "underflow": tables.underflow(cells),
        "histogram": tables.histograms(cells),
        "curves": tables.curves(cells),
    }
    settings = {cell.settings.label: cell.settings for cell in cells}
    return Judgement(
        answer=_answer(frames, settings),
        tables=frames,
        small_print=_small_print(frames, checks(frames, settings), settings),
    )


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's losses with published ones of the same scale."""
    keys = ["method", "backend"]
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


# -- checks ----------------------------------------------------------------------------


def checks(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    windows, scales = _windows(settings), frames["scales"]
    return [
        (
            "without a scale most gradients are 0 in float16, with one hardly any",
            _flushes(frames, settings, scaled_of(settings)),
        ),
        (
            "after one overflow dynamic and Backoff are back in a window of steps",
            all_hold(
                [
                    row["recovery"] <= windows[row["method"]]
                    for _, row in scales[scales["method"].isin(windows)].iterrows()
                ]
            ),
        ),
        (
            "in a simulation of the scaler alone, one infinity pins the original's "
            "LogMax at its minimum for about 11000 updates",
            all_hold([PINNED[0] < n < PINNED[1] for n in _pinned(frames, settings)]),
        ),
    ]


def floor_of(settings: Mapping[str, Settings]) -> str:
    """Return the first float16 method without a scale, or an empty text."""
    half = (m for m, each in settings.items() if each.dtype == "float16")
    return next((m for m in half if settings[m].scale == "none"), "")


def scaled_of(settings: Mapping[str, Settings]) -> list[str]:
    """Return the methods that should match float32: scaled float16 without quirks."""
    return [
        label
        for label, each in settings.items()
        if each.dtype == "float16" and each.scale != "none" and not each.strict
    ]


def _windows(settings: Mapping[str, Settings]) -> dict[str, int]:
    """Return the steps between two increases of the dynamic and Backoff scales."""
    names = {"dynamic": "increment_period", "Backoff": "step_window"}
    return {
        label: int(each.arguments.get(names[each.scale], USUAL_WINDOW))
        for label, each in settings.items()
        if each.scale in names and not each.strict
    }


def _flushes(
    frames: Mapping[str, pd.DataFrame],
    settings: Mapping[str, Settings],
    scaled: Sequence[str],
) -> Holds:
    """Whether over 50% are 0 by law and in runs, but under 5% with a scale."""
    underflow, scales = frames["underflow"], frames["scales"]
    by_law = underflow[underflow["scale_log2"] == 0]["flushed_low"]
    columns = ["zero_weights", "zero_activations"]
    without = scales[scales["method"] == floor_of(settings)][columns]
    others = scales[scales["method"].isin(scaled)][columns]
    return both(
        all_hold(by_law > 0.5), all_hold(without > 0.5), all_hold(others < 0.05)
    )


def _pinned(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[float]:
    """Return the updates for which one infinity pins each LogMax with the quirk."""
    pinned = _column(frames["simulation"], "pinned")
    return [
        pinned[label]
        for label, each in settings.items()
        if each.strict and each.scale == "LogMax" and label in pinned
    ]


def _column(table: pd.DataFrame, name: str) -> dict[str, float]:
    """Return method -> value of a column in the method's first row."""
    once = table.drop_duplicates("method")
    values = once[name].astype(float)
    return dict(zip(once["method"].astype(str), values, strict=True))


# -- sentences -------------------------------------------------------------------------


def _answer(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> str:
    losses, scales = first_backend(frames["losses"]), first_backend(frames["scales"])
    sentences = [
        *_of_the_original(losses, settings),
        *_of_others(losses, settings),
        *_of_recovery(scales, settings),
    ]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_the_original(
    losses: pd.DataFrame, settings: Mapping[str, Settings]
) -> Iterator[str]:
    """Quote the final loss of each scaler with quirks against float32."""
    base = losses[(losses["dtype"] == "float32") & (losses["scale"] == "none")]
    strict = losses[losses["method"].isin(_strict(settings))]
    for _, row in strict[strict["ratio"].notna()].iterrows():
        ends = f"{row['loss']:.3f} against {base['loss'].iloc[0]:.3f} nats"
        yield (
            f"With the original's {settings[row['method']].scale} the held-out loss "
            f"ends at {_ratio(row)} times float32's ({ends})."
        )


def _of_others(losses: pd.DataFrame, settings: Mapping[str, Settings]) -> Iterator[str]:
    """Quote the ratio to float32 of each other scale, and without a scale."""
    known = losses[losses["ratio"].notna()]
    scaled = known[known["method"].isin(scaled_of(settings))]
    parts = [
        f"{_ratio(row)} with {_short(row['method'])}" for _, row in scaled.iterrows()
    ]
    plain = known[known["method"] == floor_of(settings)]
    parts += [f"{_ratio(row)} without a scale" for _, row in plain.iterrows()]
    if parts:
        yield f"The same ratio is {joined(parts)}."


def _of_recovery(
    scales: pd.DataFrame, settings: Mapping[str, Settings]
) -> Iterator[str]:
    """Quote the steps until each scale recovered in the runs."""
    moving = scales[scales["moves"] & ~scales["method"].isin(_strict(settings))]
    parts = []
    for _, row in moving.iterrows():
        part = f"{_short(row['method'])} {_steps(row['recovery'])}"
        if row["unrecovered"] and np.isfinite(row["recovery"]):
            part += f" (in {row['unrecovered']} of {row['runs']} runs not at all)"
        parts.append(part)
    if not parts:
        return
    yield f"To recover from one overflow the scale takes: {', '.join(parts)}."
    yield from _of_windows(moving, settings)


def _of_windows(
    moving: pd.DataFrame, settings: Mapping[str, Settings]
) -> Iterator[str]:
    """Yield sentences about the growth window and its effect."""
    here = set(moving["method"])
    windows = {m: n for m, n in _windows(settings).items() if m in here}
    if not windows or max(windows.values()) >= USUAL_WINDOW:
        return
    counts = joined([str(n) for n in dict.fromkeys(windows.values())])
    names = joined([_short(label) for label in windows])
    yield (
        f"For {names} this is one growth window, which is {counts} steps here and "
        f"{USUAL_WINDOW} by default."
    )
    others = moving[~moving["method"].isin(windows)]
    slower = others[others["recovery"] > max(windows.values())]
    if len(slower):
        names = joined([_short(label) for label in slower["method"]])
        yield f"Their advantage over {names} comes from this setting."


def _strict(settings: Mapping[str, Settings]) -> list[str]:
    return [label for label, each in settings.items() if each.strict]


def _short(label: str) -> str:
    return label.removeprefix("fp16, ")


def _ratio(row: pd.Series) -> str:
    return f"{row['ratio']:.2f} [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"


def _steps(steps: float) -> str:
    return f"{steps:.0f} steps" if np.isfinite(steps) else "more steps than followed"


def _small_print(
    frames: Mapping[str, pd.DataFrame],
    checked: Sequence[Check],
    settings: Mapping[str, Settings],
) -> list[str]:
    first = next(iter(settings.values()))
    return [
        *listed(checked),
        *_of_zeros(frames, settings),
        *_of_the_quirk(frames["scales"], settings),
        f"The loss is multiplied by 2^{first.loss_log2} and the rate divided by it: "
        "nothing changes in float32. A scale here is as good as one smaller by that "
        "factor for a loss that is left alone.",
        f"Every run has one infinite loss, at step {first.overflow}; all skip it.",
        "A scale has recovered when it is above half of what it was before the "
        "overflow. The numbers are those of the runs. The table of the simulation is "
        "something else: there each scaler of the NumPy reference is shown gradients "
        "of one size, and nothing is trained.",
        "All weights have float32 masters. Median over seeds, intervals bootstrapped "
        "over them (95%); splits, batches and first weights of a seed are the same "
        "in every run. All methods have the same learning rate, which was not tuned.",
    ]


def _of_zeros(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> Iterator[str]:
    """Compare the law of float16's limits with the measured zeros."""
    at_one = frames["underflow"][frames["underflow"]["scale_log2"] == 0]
    law = dict(zip(at_one["gradients"], at_one["flushed"].astype(float), strict=True))
    floor = floor_of(settings)
    for kind in law if floor else ():
        share = _column(frames["scales"], f"zero_{kind}")[floor]
        yield (
            f"Of the float32 gradients of {kind}, {law[kind]:.0%} are too small for "
            f"float16; in float16 without a scale {share:.0%} were 0."
        )


def _of_the_quirk(scales: pd.DataFrame, settings: Mapping[str, Settings]) -> list[str]:
    """Return a sentence about each scaler with the quirks, on each backend."""
    strict = [label for label, each in settings.items() if each.strict]
    return [
        f"{row['method']} on {row['backend']}: in {row['pinned']} of {row['runs']} "
        "runs an overflow of its own had pinned the scale before the injected one; in "
        f"{row['nan']} it ended as NaN, after a step whose gradients all were 0."
        for _, row in scales[scales["method"].isin(strict)].iterrows()
    ]
