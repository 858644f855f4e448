"""Compute the answer: each scaler's behaviour and messages at its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.judgement.finding import NO_ANSWER, Judgement
from harness.records.metrics import Metric
from harness.records.record import Record
from harness.tasks.checks import Check, Holds, all_hold, both, listed
from harness.tasks.scaler_limits import tables
from harness.tasks.scaler_limits.batches import NAMES
from harness.tasks.scaler_limits.settings import Settings

__all__ = ["APART", "METRICS", "checks", "judge", "match"]

APART = ("situation", "subject")
"""The settings that distinguish runs in the tables."""

METRICS: Mapping[str, Metric] = {}
"""There are none, because the behaviour in a situation is not a quantity."""

KEYS = ["scaler", "backend"]
MUST_MATCH = {
    "overflow": ["scale", "kept", "applied_again", "right", "finite", "said"],
    "zeros": ["scale", "applied_again", "wrong"],
    "clipping": ["unequal"],
}
"""The columns that do not depend on the length of a situation."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, check them and state the answer."""
    overflow, zeros, clipping = (
        tables.observed(records, name) for name in ("overflow", "zeros", "clipping")
    )
    frames = {
        "overflow": tables.overflow(overflow),
        "sentences": tables.sentences(overflow),
        "zeros": tables.zeros(zeros),
        "clipping": tables.clipping(clipping),
        "trajectories": tables.trajectories([*overflow, *zeros]),
    }
    every = [*overflow, *zeros, *clipping]
    peers = {run.scaler for run in every if run.is_peer}
    checked, settings = checks(frames, peers), every[0].settings
    return Judgement(
        answer=_answer(frames, settings, peers),
        tables=frames,
        small_print=[
            *_after_clips(frames["clipping"], settings, peers),
            *listed(checked),
            *_notes(settings),
        ],
    )


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare the behaviour of a user's scalers with the published, per situation."""
    frames = []
    for situation, columns in MUST_MATCH.items():
        both = published[situation].merge(
            own[situation], on=KEYS, suffixes=("_published", "_own")
        )
        same = [_same(row, columns) for row in both.to_dict("records")]
        frames.append(both[KEYS].assign(situation=situation, matches=same))
    return pd.concat(frames, ignore_index=True)


def _same(row: Mapping[Any, Any], columns: Sequence[str]) -> bool:
    pairs = [(row[f"{name}_published"], row[f"{name}_own"]) for name in columns]
    return all(a == b or (pd.isna(a) and pd.isna(b)) for a, b in pairs)


# -- checks ----------------------------------------------------------------------------


def checks(frames: Mapping[str, pd.DataFrame], peers: set[str]) -> list[Check]:
    """Return each check with whether it holds on every backend."""
    (ours, theirs), zeros = (
        _split(frames[name], peers) for name in ("overflow", "zeros")
    )
    heard = _split(frames["sentences"], peers)[0]["sentence"].astype(str)
    return [
        (
            "Lockstep's scale stays above 0 while all steps overflow, no bit changes, "
            "and the first finite step is applied and right",
            _survives(ours),
        ),
        (
            "it says so and names the tensor that overflows and no other, by an error "
            "if it was asked to",
            _names_the_tensor(ours, heard),
        ),
        (
            "its scale stays finite while it only grows, and no step is wrong",
            all_hold(np.isfinite(_scale(zeros[0])) & (zeros[0]["wrong"] == 0)),
        ),
        (
            "the peers, too, change no bit while all steps overflow",
            all_hold(theirs["kept"]),
        ),
        (
            "the peers' scale reaches 0, and nothing is said",
            all_hold((theirs["scale"] == 0) & (theirs["said"] == tables.NOTHING)),
        ),
        (
            "the first finite step then makes their weights NaN",
            all_hold((theirs["applied_again"] == 1) & (theirs["finite"] == 0)),
        ),
        (
            "a peer's scale grows to inf, and no step is applied again",
            _some_get_stuck(zeros[1]),
        ),
        (
            "a clip leads to the same bits at both scales, in every scaler",
            _clips_alike(frames["clipping"]),
        ),
    ]


def _survives(ours: pd.DataFrame) -> Holds:
    going_on = ours[ours["said"] != tables.ERROR]
    alive = all_hold((ours["scale"] > 0) & (ours["kept"] == 1))
    return both(
        alive,
        all_hold((going_on["applied_again"] == 1) & (going_on["right"] == 1)),
    )


def _names_the_tensor(ours: pd.DataFrame, heard: pd.Series) -> Holds:
    quiet, bad = NAMES
    raised = ours["said"] == tables.ERROR
    return both(
        all_hold(heard.str.contains(bad) & ~heard.str.contains(quiet)),
        all_hold(raised == (ours["scaler"] == "Lockstep, raise")),
    )


def _some_get_stuck(theirs: pd.DataFrame) -> Holds:
    stuck = np.isinf(_scale(theirs)) & theirs["applied_again"].isna()
    return bool(stuck.any()) if len(theirs) else None


def _clips_alike(clipping: pd.DataFrame) -> Holds:
    right = clipping["right"] == clipping["steps"]
    tried = clipping["longer"] > 0
    return all_hold((clipping["unequal"] == 0) & right & tried)


def _scale(table: pd.DataFrame) -> pd.Series:
    return table["scale"].astype(float)


def _split(table: pd.DataFrame, peers: set[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    is_peer = table["scaler"].isin(peers)
    return table[~is_peer], table[is_peer]


# -- sentences -------------------------------------------------------------------------


def _answer(
    frames: Mapping[str, pd.DataFrame], settings: Settings, peers: set[str]
) -> str:
    sentences = [
        *_after_overflows(frames["overflow"], settings, peers),
        *_after_growth(frames["zeros"], settings, peers),
    ] or [*_after_clips(frames["clipping"], settings, peers)]
    return " ".join(sentences) or f"{NO_ANSWER}."


def _after_overflows(
    table: pd.DataFrame, settings: Settings, peers: set[str]
) -> Iterator[str]:
    went_on = table[table["said"] != tables.ERROR]
    finite = went_on["finite"] == 1
    endings = {
        "trains on under": went_on[(went_on["right"] == 1) & finite],
        "makes the weights NaN under": went_on[~finite],
    }
    if said := _said(endings, peers):
        steps = f"After {settings.overflows} overflowing steps"
        yield f"{steps} the next finite step {said}."


def _after_growth(
    table: pd.DataFrame, settings: Settings, peers: set[str]
) -> Iterator[str]:
    after = {
        "inf under": table[np.isinf(_scale(table))],
        "one that makes wrong steps under": table[table["wrong"] > 0],
    }
    if len(table):
        left = _said(after, peers) or "finite"
        grown = f"After {settings.zeros} steps of growth"
        yield f"{grown} the scale is {left}."


def _after_clips(
    table: pd.DataFrame, settings: Settings, peers: set[str]
) -> Iterator[str]:
    unequal = _named(table[table["unequal"] > 0], peers)
    where = f"but under {unequal}" if unequal else "under all of them"
    if len(table):
        same = f"are the same bits at scales 1 and {settings.large:g}"
        yield f"Clipped updates {same} {where}."


def _said(rows: Mapping[str, pd.DataFrame], peers: set[str]) -> str:
    """Return which scalers show each behaviour, without behaviours of none."""
    named = {what: _named(table, peers) for what, table in rows.items()}
    return ", and ".join(f"{what} {who}" for what, who in named.items() if who)


def _named(rows: pd.DataFrame, peers: set[str]) -> str:
    """Name the scalers of these rows: peers by name, ours with its backends."""
    is_peer = rows["scaler"].isin(peers)
    ours = " and ".join(dict.fromkeys(rows[~is_peer]["backend"]))
    names = [f"Lockstep ({ours})"] if ours else []
    return " and ".join([*names, *dict.fromkeys(rows[is_peer]["scaler"])])


def _notes(settings: Settings) -> list[str]:
    return [
        f"Two weights, a linear loss, SGD with momentum {settings.momentum:g}; every "
        f"scale starts at {settings.initial:g}. An overflow is an inf in the gradient "
        f"of {NAMES[1]} alone, which no scale is small enough for.",
        "Nothing is assumed of any scaler: whether a step was applied is read from the "
        "bits of weights and slots, whether it was right from the rule of SGD on the "
        "unscaled gradient, and what is said from warnings, errors and standard error.",
        "Columns: kept: no bit of weights and slots changed in the situation; applied "
        "again: the first finite step afterwards that was applied; right, wrong: it "
        "was, was not SGD's; finite: the weights at the end; skipped, left out: steps "
        "without and with gradients that changed nothing; unequal: numbers with other "
        "bits at the larger scale, over all steps.",
        f"On the device (capturable) nobody is told until somebody asks, here every "
        f"{settings.asked_every} steps. Under 'raise' the run ends with the error.",
    ]
