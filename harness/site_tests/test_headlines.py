"""The headline numbers of pages, computed again from the published records.

No code of ``harness`` or ``lockstep`` is used except that of this folder. Records and
declarations are read as ``docs/records.md`` describes them. So these tests do not
repeat mistakes of the code that writes pages.
"""

from __future__ import annotations

import html
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.site_tests.headline_metrics import METRICS, cost, read

ROOT = Path(__file__).resolve().parents[2]
VALIDATION = 1000
"""Seeds from this one on choose settings and are not compared."""

DIGITS = 0.005
"""The relative tolerance, because pages show three significant digits."""

NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))


# -- runs ------------------------------------------------------------------------------


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return dotted path -> value of nested settings."""
    paths: dict[str, Any] = {}
    for name, value in settings.items():
        inner = isinstance(value, Mapping)
        paths |= flat(value, f"{above}{name}.") if inner else {above + name: value}
    return paths


def is_declared(settings: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Whether the runs of scale std have these settings, given by dotted paths."""
    same = declared["fixed"] | declared["scale"]["std"]
    values = {name: [same[name]] for name in same.keys() - {"seeds", "because"}}
    return all(
        any(flat({name: each}).items() <= settings.items() for each in choices)
        for name, choices in (values | declared["vary"]).items()
    )


def runs_of(name: str, declared: Mapping[str, Any]) -> pd.DataFrame:
    """Return the published runs of scale std: settings, seed, backend and record.

    The first settled record of a run is used.
    """
    report = range(declared["scale"]["std"]["seeds"])
    validation = range(
        VALIDATION, VALIDATION + declared.get("tune", {}).get("seeds", 0)
    )
    rows = {}
    for path in sorted((ROOT / "results" / name).glob("*.jsonl")):
        if path.stem not in declared["backends"]:
            continue  # The file has environments.
        for line in path.read_text("utf-8").splitlines():
            record = json.loads(line)
            settings, seed, key = flat(record["config"]), record["seed"], record["id"]
            device = record["subject"].get("device", "cpu")
            backend = path.stem if device == "cpu" else f"{path.stem} on {device}"
            row = {**settings, "seed": seed, "backend": backend, "record": record}
            used = seed in report or seed in validation
            settled = record["status"] in ("ok", "diverged")
            counts = (key, backend) not in rows
            if used and settled and counts and is_declared(settings, declared):
                rows[key, backend] = row
    return pd.DataFrame(list(rows.values()))


def arm_of(
    runs: pd.DataFrame,
    arm: Mapping[str, Any],
    backend: str,
    declared: Mapping[str, Any],
) -> pd.Series:
    """Return the records of an arm by seed, at the best value of a tuned setting."""
    runs = having(runs, arm)
    for setting, values in flat(declared.get("tune", {}).get("values", {})).items():
        runs = runs[runs[setting] == best(runs, setting, values, declared)]
    mine = runs[(runs["backend"] == backend) & (runs["seed"] < VALIDATION)]
    assert mine["seed"].is_unique, "the arm does not name every setting that differs"
    return mine.set_index("seed")["record"]


def best(
    runs: pd.DataFrame, setting: str, values: list[Any], declared: Mapping[str, Any]
) -> Any:
    """Return the value with the best median over validation seeds.

    Only the first backend is used. Of equally good values, return the smallest.
    """
    first = runs["backend"] == declared["backends"][0]
    trials = runs[first & (runs["seed"] >= VALIDATION)]
    costs = trials["record"].map(lambda r: cost(r, declared["tune"]["metric"]))
    by_value = costs.groupby(trials[setting])
    sizes = by_value.size().reindex(values, fill_value=0)
    assert (sizes == declared["tune"]["seeds"]).all(), "the sweep is not whole"
    return by_value.median()[values].idxmin()


def effect(
    runs: pd.DataFrame, primary: Mapping[str, Any], backend: str, declared: Any
) -> tuple[float, int]:
    """Return the median effect and the number of pairs."""
    if "over" in primary:
        return over_settings(runs, primary, backend, declared)
    ratio = primary["effect"] == "log ratio"
    metric = primary["metric"]
    mine = arm_of(runs, primary["arm"], backend, declared).map(
        lambda r: read(r, metric)
    )
    other = pd.Series(1.0 if ratio else 0.0, mine.index)
    if "against" in primary:
        against = arm_of(runs, primary["against"], backend, declared)
        other = against.map(lambda record: read(record, metric))
    pairs = pd.concat([mine, other], axis=1, join="inner").dropna()
    one, two = pairs.iloc[:, 0].to_numpy(float), pairs.iloc[:, 1].to_numpy(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        effects = np.log(one) - np.log(two) if ratio else one - two
    effects[one == two] = 0.0
    middle = float(np.median(effects))
    return float(np.exp(middle)) if ratio else middle, len(pairs)


def over_settings(
    runs: pd.DataFrame, primary: Mapping[str, Any], backend: str, declared: Any
) -> tuple[float, int]:
    """Return the median of a share of settings, or of a slope, and the seeds."""
    mine, other = (
        pd.DataFrame(
            {
                values: arm_of(cell, {}, backend, declared).map(
                    lambda r: read(r, primary["metric"])
                )
                for values, cell in having(runs, arm).groupby(primary["over"])
            }
        )
        for arm in (primary["arm"], primary.get("against", primary["arm"]))
    )
    if "against" in primary:  # Larger is better in all metrics that are compared so.
        effects = ((mine > other) + 0.5 * (mine == other)).mean(axis="columns")
    else:
        x = np.log2(np.ravel(list(mine.columns)).astype(float))
        x -= x.mean()
        effects = (mine * x).sum(axis="columns") / (x**2).sum()
    return float(effects.median()), len(effects)


def having(runs: pd.DataFrame, arm: Mapping[str, Any]) -> pd.DataFrame:
    """Return the runs of an arm."""
    for setting, value in flat(arm).items():
        runs = runs[runs[setting] == value]
    return runs


# -- pages -----------------------------------------------------------------------------


def shown(page: Path) -> Iterator[tuple[str, str, float, int]]:
    """Yield claim, backend, median effect and number of pairs, as shown on a page.

    Only the first row of a claim's backends shows the claim.
    """
    claim = ""
    for line in page.read_text("utf-8").splitlines():
        if 'data-label="Measured"' not in line:
            continue
        title = re.search(r'<td class="claim"[^>]*>(.*?)(?:<small>|</td>)', line)
        backend = re.search(r'data-label="Backend">(.*?)</td>', line)
        number = re.search(
            r'"Measured">(?:ratio|difference|share|slope per doubling) (\S+) \[', line
        )
        pairs = re.search(r"<small>(\d+) seeds", line)
        assert title and backend and number and pairs, line
        claim = html.unescape(title[1]) or claim
        text = number[1].replace("−", "-").replace("∞", "inf")
        name = backend[1].removesuffix(" (judged)")
        yield claim, name, float(text), int(pairs[1])


@pytest.mark.parametrize("name", NAMES)
def test_a_page_leads_with_what_its_records_say(name: str, site: Path) -> None:
    declared = tomllib.loads((ROOT / f"experiments/{name}.toml").read_text("utf-8"))
    if "primary" not in declared:
        pytest.skip("it is no experiment, or predicts nothing")
    if not (ROOT / "results" / name).is_dir():
        pytest.skip("no results are published yet")
    runs = runs_of(name, declared)
    primaries = {primary["claim"]: primary for primary in declared["primary"]}
    rows = [*shown(site / f"generated/experiments/{name}.html")]
    assert {claim for claim, *_ in rows} == set(primaries)
    for claim, backend, median, pairs in rows:
        expected = effect(runs, primaries[claim], backend, declared)
        assert (median, pairs) == (pytest.approx(expected[0], rel=DIGITS), expected[1])


def test_metrics_are_defined_here_if_something_published_needs_them() -> None:
    needed = set()
    for name in NAMES:
        declared = tomllib.loads((ROOT / f"experiments/{name}.toml").read_text("utf-8"))
        metrics = [primary["metric"] for primary in declared.get("primary", [])]
        metrics += [declared["tune"]["metric"]] if "tune" in declared else []
        if (ROOT / "results" / name).is_dir():
            needed |= {(declared["task"], metric) for metric in metrics}
    assert needed == set(METRICS)


def test_a_value_is_chosen_by_validation_runs_on_the_first_backend() -> None:
    declared = {
        "backends": ["pytorch", "tf"],
        "tune": {"seeds": 2, "metric": "mrr", "values": {"rate": [1.0, 2.0, 3.0]}},
    }
    ranks = {
        ("pytorch", VALIDATION): [0.75, 0.25, 0.125],
        ("pytorch", VALIDATION + 1): [0.75, 0.25, 0.375],  # The first one diverged.
        ("pytorch", 0): [0.75, 0.5, 0.625],
        ("tf", VALIDATION): [0.75, 0.125, 0.625],
    }
    rows = []
    for (backend, seed), values in ranks.items():
        for rate, rank in zip([1.0, 2.0, 3.0], values, strict=True):
            series = {"mrr": [rank], "rate": [rate]}
            record = {"task": "link_prediction", "status": "ok", "series": series}
            row = {"limit": "clip", "rate": rate, "backend": backend, "seed": seed}
            rows.append({**row, "record": record})
    rows[3]["record"]["status"] = "diverged"
    mine = arm_of(pd.DataFrame(rows), {"limit": "clip"}, "pytorch", declared)
    assert [record["series"]["rate"] for record in mine] == [[2.0]]
    with pytest.raises(AssertionError, match="the sweep is not whole"):
        arm_of(pd.DataFrame(rows[1:]), {"limit": "clip"}, "pytorch", declared)


def test_effects_are_paired_by_seed_and_a_diverged_run_counts_as_the_worst() -> None:
    losses = {"a": [1.0, 8.0, 4.0], "b": [1.0, 1.0, 4.0]}
    rows = [
        {
            "limit": arm,
            "seed": seed,
            "backend": "tf",
            "record": {
                "task": "deep_digits",
                "status": "ok",
                "series": {"loss": [9.0, value]},
            },
        }
        for arm, values in losses.items()
        for seed, value in enumerate(values)
    ]
    primary = {"metric": "loss", "effect": "log ratio"}
    primary |= {"arm": {"limit": "a"}, "against": {"limit": "b"}}
    assert effect(pd.DataFrame(rows), primary, "tf", {}) == (1.0, 3)
    for row in rows[:2]:
        row["record"]["status"] = "diverged"
    assert effect(pd.DataFrame(rows), primary, "tf", {}) == (np.inf, 3)
