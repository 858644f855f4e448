"""The answer, computed: what zeros do and what the wrapper saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from harness.claims import NO_ANSWER, Holds, all_hold, both, joined
from harness.finding import Judgement
from harness.records.record import Record
from harness.statistics import Interval, overlap
from harness.tables import first_host
from harness.tasks.multitask_digits import laws, tables
from harness.tasks.multitask_digits.settings import Settings

__all__ = ["APART", "judge", "match"]

APART = ("optimizer.name", "wrapper", "presence")
"""The settings by which the tables tell runs apart."""

TOLERANCE = 0.05
"""How far an interval may miss a law: percentiles of few seeds are too narrow, and the
numbers of movements and of informative steps are drawn together."""

STATE_TOLERANCE = 1e-3
"""For the decay of a slot over the whole absence, in float32."""


def judge(records: Sequence[Record]) -> Judgement:
    """Make tables of the records, judge the claims by them and say the answer."""
    cells = tables.cells(records)
    made = {
        "movement": tables.movement(cells),
        "laws": tables.theory(cells),
        "state": tables.state(cells),
        "losses": tables.losses(cells),
        "curves": tables.curves(cells),
        "hosts": tables.hosts(cells),
    }
    harmed = both(_harmed(made["movement"]), _fades(made["state"]))
    saved = both(_saves(made["movement"]), _keeps(made["state"]))
    lawful = both(not len(_lawless(made["movement"])), _decays(made["state"]))
    return Judgement(
        answer=_answer(made, harmed, saved),
        verdict=_verdict(harmed, both(saved, lawful)),
        tables=made,
        small_print=_small_print(made, cells[0].settings, harmed, saved),
    )


def _verdict(harmed: Holds, rest: Holds) -> str:
    if harmed is None:
        return "not judged"
    if not harmed:
        return "not supported"
    return {True: "reproduced", False: "partly", None: "reproduced where judged"}[rest]


def match(
    published: Mapping[str, pd.DataFrame], own: Mapping[str, pd.DataFrame]
) -> pd.DataFrame:
    """Compare a user's movement with the published one, each over the law of its run.

    Runs of different length have different laws, so the ratios are what must match:
    their intervals overlap, or nearly so.
    """
    keys = ["optimizer", "wrapper", "presence", "host"]
    wanted = [*keys, "ratio", "ratio_low", "ratio_high"]
    both = published["movement"][wanted].merge(
        own["movement"][wanted], on=keys, suffixes=("_published", "_own")
    )
    both["matches"] = [
        overlap(_ratio(row, "_published"), _ratio(row, "_own"), TOLERANCE)
        for _, row in both.iterrows()
    ]
    return both


# -- claims ----------------------------------------------------------------------------


def _harmed(movement: pd.DataFrame) -> Holds:
    """Fed zeros, some optimizer moves further than it should at the smallest p."""
    fed = _rarest(movement, "none")["low"] > 1 + TOLERANCE
    return bool(fed.any()) if len(fed) else None


def _saves(movement: pd.DataFrame) -> Holds:
    """Where zeros do harm, the wrapper comes nearer to 1."""
    keys = ["optimizer", "host"]
    fed, kept = (
        _rarest(movement, wrapper).set_index(keys)["measured"]
        for wrapper in ("none", "default")
    )
    excess = pd.DataFrame({"fed": (fed - 1).abs(), "kept": (kept - 1).abs()}).dropna()
    excess = excess[excess["fed"] > TOLERANCE]
    return all_hold(excess["kept"] < excess["fed"])


def _fades(state: pd.DataFrame) -> Holds:
    return all_hold(_after_absence(state, "none")["highest"] < 1)


def _keeps(state: pd.DataFrame) -> Holds:
    """With the wrapper every slot of every run is what it was, to the bit."""
    kept = _after_absence(state, "default")
    return all_hold((kept["lowest"] == 1) & (kept["highest"] == 1))


def _decays(state: pd.DataFrame) -> Holds:
    """Slots shrink as their decay says."""
    gap = np.abs(state["kept"] - state["law"])
    return all_hold(gap <= STATE_TOLERANCE * state["law"])


def _lawless(movement: pd.DataFrame) -> pd.DataFrame:
    """Return the rows whose interval misses their law."""
    one = Interval(*map(np.asarray, (1.0, 1.0, 1.0)))
    missed = [not overlap(_ratio(r), one, TOLERANCE) for _, r in movement.iterrows()]
    return movement[np.array(missed, dtype=bool) & movement["law"].notna()]


# -- sentences -------------------------------------------------------------------------


def _answer(made: Mapping[str, pd.DataFrame], harmed: Holds, saved: Holds) -> str:
    movement = made["movement"]
    fed, kept = (_factors(movement, wrapper) for wrapper in ("none", "default"))
    if not (fed or kept):
        return f"{NO_ANSWER}."
    start = f"With a task present in a step with probability {_share(movement)}"
    if not fed:
        return (
            f"{start} and the wrapper, a weight moves {kept} times as far per "
            f"informative step as when the task is always present{_losses_of(made)}."
        )
    if harmed is False:
        return (
            f"{start}, fed zeros do no harm that these runs can show: a weight moves "
            f"{fed} times as far per informative step as when the task is always "
            "present."
        )
    worn = ", and wear its state away" if _fades(made["state"]) else ""
    harm = (
        f"{start}, fed zeros make a weight move {fed} times as far per informative "
        f"step as when the task is always present{worn}"
    )
    if not kept:
        return f"{harm}."
    if saved is False:
        return f"{harm}; that the wrapper mends this is not supported: {kept} with it."
    stays = " and its state stays, to the bit" if _keeps(made["state"]) else ""
    with_it = f"with the wrapper it moves {kept} times as far{stays}"
    return f"{harm}; {with_it}{_losses_of(made)}."


def _losses_of(made: Mapping[str, pd.DataFrame]) -> str:
    return f", while {_loss_clause(made['losses'])}" if len(made["losses"]) else ""


def _share(movement: pd.DataFrame) -> str:
    return f"{movement['presence'].min():g}"


def _loss_clause(losses: pd.DataFrame) -> str:
    """Count the losses that the wrapper lowers and raises, on the first host."""
    rarest = first_host(losses[losses["presence"] == losses["presence"].min()])
    lower = int((rarest["ratio_low"] > 1).sum())
    higher = int((rarest["ratio_high"] < 1).sum())
    return (
        f"held-out losses end lower with it in {lower} and higher in {higher} of "
        f"{len(rarest)} cases"
    )


def _factors(movement: pd.DataFrame, wrapper: str) -> str:
    """Write the measured factors at the smallest p: '7.0 (Adam), 3.0 (RMSProp)'."""
    rarest = _rarest(movement, wrapper)
    parts = []
    for name, rows in rarest.groupby("optimizer", sort=True):
        shown = sorted({f"{value:.1f}" for value in rows["measured"]})
        parts.append(f"{' to '.join([shown[0], *shown[1:][-1:]])} ({name})")
    return joined(parts)


def _small_print(
    made: Mapping[str, pd.DataFrame], settings: Settings, harmed: Holds, saved: Holds
) -> list[str]:
    movement = made["movement"]
    first, last = tables.second_half(settings)
    sentences = [
        f"Movement is that of each task's probe, a weight with a constant gradient, in "
        f"steps {first + 1} to {last}; its unit is the movement per step when the task "
        "is always present. Intervals are bootstrapped over seeds (95 %)."
    ]
    if harmed is None:
        sentences.append("Not judged, for want of runs: whether zeros do harm.")
    if saved is None:
        sentences.append("Not judged, for want of runs: what the wrapper saves.")
    sentences += [
        f"Not as the law says: {_cell(row)}, measured {row['measured']:.2f} "
        f"[{row['low']:.2f}, {row['high']:.2f}], law {row['law']:.2f}."
        for _, row in _lawless(movement).iterrows()
    ]
    sentences += _transients(movement)
    sentences += _shared_powers(movement, settings)
    sentences += _loss_details(made["losses"])
    hosts = made["hosts"]
    if len(hosts):
        sentences.append(
            "Two hosts with the same seed differ by rounding alone, which training "
            "amplifies; what must agree are the intervals."
        )
    return sentences


def _transients(movement: pd.DataFrame) -> list[str]:
    """Say where a run is too short for its state to have settled."""
    once = movement.drop_duplicates(["optimizer", "wrapper", "presence"])
    short = once[np.abs(once["law"] / once["limit"] - 1) > TOLERANCE]
    if short.empty:
        return []
    cases = [
        f"{_cell(row, host=False)} {row['law']:.2f} instead of {row['limit']:.2f} "
        f"({row['informative']:.0f} informative steps)"
        for _, row in short.iterrows()
    ]
    return [f"Not stationary yet, by the laws: {'; '.join(cases)}."]


def _shared_powers(movement: pd.DataFrame, settings: Settings) -> list[str]:
    """Explain Adam's excess with the wrapper, where there is one."""
    rows = _rarest(movement, "default")
    rows = rows[(rows["optimizer"] == "Adam") & (rows["law"] > 1 + TOLERANCE)]
    if rows.empty:
        return []
    presence = float(rows["presence"].iloc[0])
    adam = {"name": "Adam", "learning_rate": 1.0, "beta1": 0.9, "beta2": 0.999}
    original = laws.movement(adam, "strict", presence, tables.second_half(settings))
    return [
        "Adam's excess with the wrapper is bias correction: the powers of beta are "
        "shared by all variables and advance when any of them is updated, so that a "
        "rare task's young moments count as old. The original advances them in every "
        f"step; the same law gives {original:.1f} for it (betas 0.9 and 0.999)."
    ]


def _loss_details(losses: pd.DataFrame) -> list[str]:
    """Name the losses that the wrapper changes, on the first host, and lost runs."""
    rarest = first_host(losses[losses["presence"] == losses["presence"].min()])
    sentences = []
    lower, higher = rarest["ratio_low"] > 1, rarest["ratio_high"] < 1
    for rows, what in ((rarest[lower], "lower"), (rarest[higher], "higher")):
        cases = [
            f"{row['task']} with {row['optimizer']} ({row['with']:.2g} instead of "
            f"{row['without']:.2g})"
            for _, row in rows.iterrows()
        ]
        if cases:
            sentences.append(f"Losses {what} with the wrapper: {', '.join(cases)}.")
    for _, row in rarest[rarest["lost_without"] + rarest["lost_with"] > 0].iterrows():
        sentences.append(
            f"{row['task']} with {row['optimizer']} ended above the loss of the "
            f"untrained net in {row['lost_without']} of {row['seeds']} runs without "
            f"the wrapper, in {row['lost_with']} with it."
        )
    return sentences


# -- rows ------------------------------------------------------------------------------


def _rarest(movement: pd.DataFrame, wrapper: str) -> pd.DataFrame:
    smallest = movement["presence"] == movement["presence"].min()
    rows: pd.DataFrame = movement[smallest & (movement["wrapper"] == wrapper)]
    return rows


def _after_absence(state: pd.DataFrame, wrapper: str) -> pd.DataFrame:
    """Return the rows at the end of the absence."""
    last = state["absent"] == state["absent"].max()
    rows: pd.DataFrame = state[last & (state["wrapper"] == wrapper)]
    return rows


def _ratio(row: pd.Series, suffix: str = "") -> Interval:
    names = ("ratio", "ratio_low", "ratio_high")
    return Interval(*(np.asarray(row[f"{name}{suffix}"]) for name in names))


def _cell(row: pd.Series, host: bool = True) -> str:
    wrapper = {"none": "without", "default": "with"}.get(row["wrapper"], "with strict")
    where = f" on {row['host']}" if host else ""
    return f"{row['optimizer']} {wrapper} the wrapper at p = {row['presence']:g}{where}"
