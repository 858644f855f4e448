"""Compute the answer: the quirks of the policies, and their effects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from harness.figures.tables import first_backend
from harness.judgement.finding import NO_ANSWER, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.checks import Check, Holds, all_hold, both, listed
from harness.tasks.policy_digits import tables
from harness.tasks.policy_digits.settings import Settings

__all__ = ["APART", "METRICS", "judge", "match"]

APART = ("schedule.label", "mode")
"""The settings that distinguish runs in the tables."""

METRICS = {
    "loss": Metric(
        lambda r: r.series["loss"][-1] if r.status == "ok" else np.inf,
        "nats",
        "smaller",
    ),
}
"""The metrics by which runs are compared."""

TOLERANCE = 0.01
"""The tolerance of a peak; the law's step is no integer."""

ROUNDING = 1e-6
"""The relative tolerance of the rates of two backends: a few ULP of float32."""

SLACK = 0.05
"""The difference of a seed's losses on two backends above which the page lists it."""

DIFFER = ("cosine_decay", "inv_poly_decay")
"""The policies with another rule in strict mode."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check them and state the answer."""
    cells = tables.cells(records)
    frames = {
        "peaks": tables.peaks(cells),
        "losses": tables.losses(cells),
        "backends": tables.backends(cells),
        "schedules": tables.schedules(cells),
        "curves": tables.curves(cells),
    }
    settings = {cell.settings.label: cell.settings for cell in cells}
    checked = checks(frames, settings)
    return Judgement(
        answer=_answer(frames),
        tables=frames,
        small_print=_small_print(frames, checked, settings),
    )


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's peaks with the published ones, as losses depend on the scale."""
    keys = ["schedule", "mode", "backend"]
    both = published["peaks"][[*keys, "peak"]].merge(
        own["peaks"][[*keys, "peak"]], on=keys, suffixes=("_published", "_own")
    )
    gap = np.abs(both["peak_own"] / both["peak_published"] - 1)
    # A peak is at an integer step; its distance to the law's depends on the scale.
    return both.assign(matches=gap <= TOLERANCE)


# -- checks ----------------------------------------------------------------------------


def checks(
    frames: Mapping[str, pd.DataFrame], settings: Mapping[str, Settings]
) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    policies = {label: setting.policy for label, setting in settings.items()}
    peaks = frames["peaks"].assign(policy=frames["peaks"]["schedule"].map(policies))
    poly, inverse, cosine, piecewise, transformer = (
        peaks[peaks["policy"] == name]
        for name in (
            "poly_decay",
            "inv_poly_decay",
            "cosine_decay",
            "piecewise_constant",
            "transformer_policy",
        )
    )
    early = poly[poly["law"] < 1 - TOLERANCE]
    strict, default = _by_mode(inverse)
    at_boundary = all_hold((piecewise["middle"] == 1) & (piecewise["last"] < 1))
    return [
        (
            "poly_decay decays during its warm-up and does not reach its rate",
            both(all_hold(early["peak"] < 1 - TOLERANCE), _lawful(early)),
        ),
        (
            "it reaches its rate where the decay waits for the warm-up",
            _lawful(poly[poly["law"] == 1]),
        ),
        (
            "inv_poly_decay passes over its warm-up and its floor under strict only",
            both(
                all_hold(strict["first"] == 1),
                all_hold(default["first"] == 0),
                _ends_lower(strict, default),
            ),
        ),
        (
            "min_lr of cosine_decay is a share of the rate under strict, else a rate",
            _ends_at_its_floor(cosine, settings),
        ),
        ("piecewise_constant keeps the old rate at a boundary step", at_boundary),
        (
            "transformer_policy rises to its peak and falls from there",
            both(_lawful(transformer), all_hold(transformer["last"] < 1)),
        ),
        (
            "the other policies are the same in both modes",
            _same_in_both_modes(peaks, frames["losses"]),
        ),
        (
            "the backends' rates agree to rounding",
            all_hold(frames["backends"]["rate"] <= ROUNDING),
        ),
    ]


def _lawful(peaks: pd.DataFrame) -> Holds:
    return all_hold(np.abs(peaks["peak"] / peaks["law"] - 1) <= TOLERANCE)


def _ends_lower(strict: pd.DataFrame, default: pd.DataFrame) -> Holds:
    """Whether every schedule ends lower in strict mode than by default."""
    keys = ["schedule", "backend"]
    rows = strict.merge(default, on=keys, suffixes=("_strict", "_default"))
    return all_hold(rows["last_strict"] < rows["last_default"])


def _ends_at_its_floor(peaks: pd.DataFrame, settings: Mapping[str, Settings]) -> Holds:
    """Whether strict ends at min_lr times the rate, and the default at min_lr."""
    floors = [settings[m].arguments.get("min_lr", 0.0) for m in peaks["schedule"]]
    rates = [settings[label].rate for label in peaks["schedule"]]
    shares = np.where(peaks["mode"] == "strict", floors, np.divide(floors, rates))
    return all_hold(np.isclose(peaks["last"], shares, rtol=ROUNDING))


def _same_in_both_modes(peaks: pd.DataFrame, losses: pd.DataFrame) -> Holds:
    """Whether the rates and the losses of the modes are exactly equal."""
    alike = peaks[~peaks["policy"].isin(DIFFER)]
    rows = alike.merge(losses, on=["schedule", "mode", "backend"])
    strict, default = _in_both_modes(rows, ["schedule", "backend"])
    columns = ["peak", "first", "middle", "last", "loss"]
    return strict[columns].equals(default[columns]) if len(strict) else None


def _in_both_modes(
    rows: pd.DataFrame, keys: list[str]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows of the schedules that ran in both modes, in the same order."""
    strict, default = (of.set_index(keys).sort_index() for of in _by_mode(rows))
    common = strict.index.intersection(default.index)
    return strict.loc[common], default.loc[common]


def _by_mode(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    return rows[rows["mode"] == "strict"], rows[rows["mode"] == "default"]


# -- sentences -------------------------------------------------------------------------


def _answer(frames: Mapping[str, pd.DataFrame]) -> str:
    sentences = [*_of_rates(frames["peaks"]), *_of_losses(frames["losses"])]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _of_rates(peaks: pd.DataFrame) -> Iterator[str]:
    """Quote the peak that warm-up lowers; name the schedules that differ in strict."""
    first = first_backend(peaks)
    early = first[first["law"] < 1 - TOLERANCE]
    parts = []
    if len(early):
        peak, law = early["peak"].iloc[0], early["law"].iloc[0]
        parts.append(
            "With decay from the first step, poly_decay peaks at "
            f"{peak:.2f} of its rate (law: {law:.2f})"
        )
    if set(first["mode"]) == {"strict", "default"}:
        verb = (
            "strict and default differ for"
            if parts
            else "Strict and default differ for"
        )
        parts.append(f"{verb} {_differing(first)}")
    if parts:
        yield f"{', and '.join(parts)}."


def _of_losses(losses: pd.DataFrame) -> Iterator[str]:
    """Quote the lowest and the highest loss, by default or else in strict mode."""
    first = first_backend(losses)
    for mode in ("default", "strict"):
        rows = first[first["mode"] == mode].sort_values("loss")
        if len(rows):
            low, high = rows.iloc[0], rows.iloc[-1]
            yield (
                "With the same budget, held-out losses end between "
                f"{low['loss']:.3f} ({low['schedule']}) and {high['loss']:.3f} "
                f"({high['schedule']})."
            )
            return


def _differing(peaks: pd.DataFrame) -> str:
    """Name the schedules with other rates in strict mode."""
    columns = ["peak", "first", "middle", "last"]
    strict, default = _in_both_modes(peaks, ["schedule"])
    other = (strict[columns] != default[columns]).any(axis=1)
    return " and ".join(other.index[other]) or "none"


def _small_print(
    frames: Mapping[str, pd.DataFrame],
    checked: Sequence[Check],
    settings: Mapping[str, Settings],
) -> list[str]:
    first = next(iter(settings.values()))
    sentences = listed(checked)
    sentences.append(
        f"Every schedule is given the rate {first.rate:g} for {first.steps} steps of "
        "SGD; none was tuned, so the losses rank these settings and not the policies."
    )
    sentences.append(
        "Median over seeds, intervals bootstrapped over them (95%); splits and "
        "batches of a seed are the same in every run."
    )
    backends = frames["backends"]
    if len(backends):
        gap = f"{backends['rate'].max():.0e}"
        sentences.append(f"Rates of two backends are at most {gap} apart.")
    for _, row in _backend_gaps(backends).iterrows():
        sentences.append(
            f"{row['schedule']} ({row['mode']}): losses of a seed on "
            f"{row['backend']} and {row['against']} differ by up to {row['loss']:.1%}."
        )
    return sentences


def _backend_gaps(backends: pd.DataFrame) -> pd.DataFrame:
    """Return pairs of backends whose losses differ by more than 5% on some seed."""
    return backends[backends["loss"] > SLACK]
