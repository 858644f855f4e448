"""The answer, computed: what each scaler does at its limits and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from harness.finding import Judgement
from harness.record import Record
from harness.tables import all_hold
from harness.tasks.scaler_limits import tables
from harness.tasks.scaler_limits.batches import NAMES
from harness.tasks.scaler_limits.settings import Settings

__all__ = ["claimed", "judge", "match"]

KEYS = ["scaler", "host"]
MUST_MATCH = {
    "overflow": ["scale", "kept", "applied_again", "right", "finite", "said"],
    "zeros": ["scale", "applied_again", "wrong"],
    "clipping": ["unequal"],
}
"""What does not depend on how long a situation lasts."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, judge the claims by them and say the answer."""
    overflow, zeros, clipping = (
        tables.observed(records, name) for name in ("overflow", "zeros", "clipping")
    )
    made = {
        "overflow": tables.overflow(overflow),
        "sentences": tables.sentences(overflow),
        "zeros": tables.zeros(zeros),
        "clipping": tables.clipping(clipping),
        "trajectories": tables.trajectories([*overflow, *zeros]),
    }
    peers = {run.scaler for run in overflow if run.is_peer}
    claims = claimed(made, peers)
    verdict = "not supported"
    if claims[0][1]:
        verdict = "reproduced" if all(holds for _, holds in claims) else "partly"
    settings = overflow[0].settings
    small_print = [
        f"{'Holds' if holds else 'Does not hold'}: {claim}." for claim, holds in claims
    ]
    return Judgement(
        answer=_answer(made, settings, peers),
        verdict=verdict,
        tables=made,
        small_print=[*small_print, *_notes(settings)],
    )


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare what a user's scalers did with the published, situation by situation."""
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


# -- claims ----------------------------------------------------------------------------


def claimed(
    made: Mapping[str, pd.DataFrame], peers: set[str]
) -> list[tuple[str, bool]]:
    """Return each claim with whether it holds on every host; the first is the main."""
    overflow, zeros, clipping = (
        _split(made[name], peers) for name in ("overflow", "zeros", "clipping")
    )
    ours, theirs = overflow
    raised = ours["said"] == tables.ERROR
    heard = _split(made["sentences"], peers)[0]["sentence"]
    quiet, bad = NAMES
    going_on = ours[~raised]
    unfloored = (theirs["scale"] == 0) & (theirs["said"] == tables.NOTHING)
    stuck = np.isinf(zeros[1]["scale"]) & zeros[1]["applied_again"].isna()
    return [
        (
            "Lockstep's scale stays above 0 while all steps overflow, no bit changes, "
            "and the first finite step is applied and right",
            all_hold(ours["scale"] > 0)
            and all_hold(ours["kept"])
            and all_hold(going_on["applied_again"] == 1)
            and all_hold(going_on["right"]),
        ),
        (
            "it says so and names the tensor that overflows and no other, by an error "
            "if it was asked to",
            all_hold(heard.str.contains(bad))
            and not heard.str.contains(quiet).any()
            and all_hold(raised == (ours["scaler"] == "Lockstep, raise")),
        ),
        (
            "its scale stays finite while it only grows, and no step is wrong",
            all_hold(np.isfinite(zeros[0]["scale"]))
            and all_hold(zeros[0]["wrong"] == 0),
        ),
        (
            "the peers, too, change no bit while all steps overflow",
            all_hold(theirs["kept"]),
        ),
        ("the peers' scale reaches 0, and nothing is said", all_hold(unfloored)),
        (
            "the first finite step then makes their weights NaN",
            all_hold(theirs["applied_again"] == 1) and not theirs["finite"].any(),
        ),
        (
            "a peer's scale grows to inf, and no step is applied again",
            bool(stuck.any()),
        ),
        (
            "a clip leads to the same bits at both scales, in every scaler",
            all_hold(pd.concat(clipping)["unequal"] == 0)
            and all_hold(pd.concat(clipping)["right"] == pd.concat(clipping)["steps"])
            and all_hold(pd.concat(clipping)["longer"] > 0),
        ),
    ]


def _split(table: pd.DataFrame, peers: set[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    is_peer = table["scaler"].isin(peers)
    return table[~is_peer], table[is_peer]


# -- sentences -------------------------------------------------------------------------


def _answer(
    made: Mapping[str, pd.DataFrame], settings: Settings, peers: set[str]
) -> str:
    overflow, zeros, clipping = (
        made[name] for name in ("overflow", "zeros", "clipping")
    )
    went_on = overflow[overflow["said"] != tables.ERROR]
    endings = {
        "trains on under": went_on[(went_on["right"] == 1) & went_on["finite"]],
        "makes the weights NaN under": went_on[~went_on["finite"]],
    }
    after = {
        "at inf under": zeros[np.isinf(zeros["scale"])],
        "at one that makes wrong steps under": zeros[zeros["wrong"] > 0],
    }
    unequal = _named(clipping[clipping["unequal"] > 0], peers)
    same = f"are the same bits at scales 1 and {settings.large:g}"
    return (
        f"After {settings.overflows} overflowing steps the next finite one "
        f"{_said(endings, peers)}; {settings.zeros} steps of growth leave the scale "
        f"{_said(after, peers) or 'finite'}; clipped updates {same} "
        f"{f'but under {unequal}' if unequal else 'under all of them'}."
    )


def _said(rows: Mapping[str, pd.DataFrame], peers: set[str]) -> str:
    """Say which scalers do what; what none does is left out."""
    named = {what: _named(found, peers) for what, found in rows.items()}
    return ", and ".join(f"{what} {who}" for what, who in named.items() if who)


def _named(rows: pd.DataFrame, peers: set[str]) -> str:
    """Name the scalers of these rows: peers by name, ours by the hosts it is on."""
    is_peer = rows["scaler"].isin(peers)
    ours = " and ".join(dict.fromkeys(rows[~is_peer]["host"]))
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
