"""The numbers that pages lead with, computed a second time from published records.

Nothing of ``harness`` or ``lockstep`` is used but the place of the built site. Records
and declarations are read as ``docs/records.md`` describes them, so a mistake in the
code that writes pages is not repeated in the code that checks them.
"""

from __future__ import annotations

import html
import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
VALIDATION = 1000
"""Seeds from here on choose settings and are not compared."""

DIGITS = 0.005
"""Pages show three significant digits: the last is at most half a unit off."""

Record = Mapping[str, Any]
Reader = Callable[[Record], float]

NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.toml"))


# -- what each metric is ---------------------------------------------------------------


def at_the_end(name: str) -> Reader:
    """Return what reads the last number of a series."""
    return lambda record: record["series"][name][-1]


def summed(name: str) -> Reader:
    """Return what reads a number of the summary; NaN if a run has none."""
    return lambda record: record["summary"].get(name, np.nan)


def heads(record: Record) -> float:
    """Return the path of all heads per step with their task, in the second half."""
    series, end = record["series"], record["config"]["checkpoints"]
    path, steps = (
        sum(v[end] - v[end // 2] for k, v in series.items() if k.startswith(kind))
        for kind in ("path/", "informative/")
    )
    return path / steps if steps else np.nan


def mean_loss(record: Record) -> float:
    """Return the mean of the tasks' losses when training ends; absences come after."""
    series, end = record["series"], record["config"]["checkpoints"]
    return float(np.mean([v[end] for k, v in series.items() if k.startswith("loss/")]))


def times(what: str, limit: str, against: str) -> Reader:
    """Return what divides two times of one run."""
    one, other = (summed(f"seconds/{what}/{name}") for name in (limit, against))
    return lambda record: one(record) / other(record)


LARGER, SMALLER = 0.0, np.inf
"""What counts for a run that diverged, where more is better and where less is."""

METRICS: Mapping[tuple[str, str], tuple[Reader, float]] = {
    ("asynchronous_digits", "accuracy"): (summed("accuracy"), LARGER),
    ("asynchronous_digits", "mean accuracy"): (summed("mean_accuracy"), LARGER),
    ("deep_digits", "loss"): (at_the_end("loss"), SMALLER),
    ("gradient_norm", "norm ratio"): (summed("ratio"), SMALLER),
    ("gradient_norm", "unequal entries"): (summed("unequal"), SMALLER),
    ("link_prediction", "hits"): (at_the_end("hits"), LARGER),
    ("link_prediction", "loss"): (at_the_end("loss"), SMALLER),
    ("link_prediction", "mrr"): (at_the_end("mrr"), LARGER),
    ("lost_updates", "updates lost"): (summed("first"), SMALLER),
    ("lost_updates", "way gone"): (summed("moved"), LARGER),
    ("multitask_digits", "head movement"): (heads, SMALLER),
    ("multitask_digits", "loss"): (mean_loss, SMALLER),
    ("policy_digits", "loss"): (at_the_end("loss"), SMALLER),
    ("recommender", "hits"): (at_the_end("hits"), LARGER),
    ("recommender", "lookup time"): (times("lookup", "lookup", "clip"), SMALLER),
    ("recommender", "loss"): (at_the_end("loss"), SMALLER),
    ("recommender", "rows above the limit"): (at_the_end("above"), SMALLER),
    ("recommender", "step time"): (times("step", "clip", "lookup"), SMALLER),
}


def read(record: Record, metric: str) -> float:
    """Return a metric of a run."""
    reader, worst = METRICS[record["task"], metric]
    return float(reader(record)) if record["status"] == "ok" else worst


# -- runs ------------------------------------------------------------------------------


def flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings by their dotted paths."""
    paths: dict[str, Any] = {}
    for name, value in settings.items():
        inner = isinstance(value, Mapping)
        paths |= flat(value, f"{above}{name}.") if inner else {above + name: value}
    return paths


def runs_of(name: str, declared: Mapping[str, Any]) -> pd.DataFrame:
    """Return the published runs of scale std: settings, seed, backend and record.

    A record replaces those of the same run above it.
    """
    scale = dict(declared["scale"]["std"])
    seeds = scale.pop("seeds")
    del scale["because"]
    tuned = flat(declared.get("tune", {}).get("values", {}))
    wanted = flat({**declared.get("fixed", {}), **scale})
    rows = {}
    for path in sorted((ROOT / "results" / name).glob("*.jsonl")):
        if path.stem not in declared["backends"]:
            continue  # Environments, code and verifications.
        for line in path.read_text("utf-8").splitlines():
            record = json.loads(line)
            settings, seed = flat(record["config"]), record["seed"]
            row = {**settings, "seed": seed, "backend": path.stem, "record": record}
            right = all(settings.get(key) == value for key, value in wanted.items())
            used = seed < seeds or (tuned and seed >= VALIDATION)
            on_cpu = record["subject"].get("device", "cpu") == "cpu"
            if right and used and on_cpu and record["status"] in ("ok", "diverged"):
                rows[record["id"], path.stem] = row
    return pd.DataFrame(list(rows.values()))


def arm_of(
    runs: pd.DataFrame,
    arm: Mapping[str, Any],
    backend: str,
    declared: Mapping[str, Any],
) -> pd.Series:
    """Return the records of an arm by seed; at its best rate, if it has several."""
    for setting, value in flat(arm).items():
        runs = runs[runs[setting] == value]
    for setting, values in flat(declared.get("tune", {}).get("values", {})).items():
        runs = runs[runs[setting] == best(runs, setting, values, declared)]
    mine = runs[(runs["backend"] == backend) & (runs["seed"] < VALIDATION)]
    assert mine["seed"].is_unique, "the arm does not name every setting that differs"
    return mine.set_index("seed")["record"]


def best(
    runs: pd.DataFrame, setting: str, values: list[Any], declared: Mapping[str, Any]
) -> Any:
    """Return the value with the best median over validation seeds, first backend."""
    metric = declared["tune"]["metric"]
    trials = runs[
        (runs["seed"] >= VALIDATION)
        & (runs["backend"] == declared["backends"][0])
        & runs[setting].isin(values)
    ]
    medians = trials.groupby(setting)["record"].agg(
        lambda records: np.median([read(record, metric) for record in records])
    )
    more = METRICS[declared["task"], metric][1] == LARGER
    return medians.idxmax() if more else medians.idxmin()


def effect(
    runs: pd.DataFrame, primary: Mapping[str, Any], backend: str, declared: Any
) -> tuple[float, int]:
    """Return the median effect, a ratio or a difference, and the number of pairs."""
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


# -- pages -----------------------------------------------------------------------------


def shown(page: Path) -> Iterator[tuple[str, str, float, int]]:
    """Yield claim, backend, median effect and number of pairs, as a reader sees them.

    A claim is in the first row of its backends only.
    """
    claim = ""
    for line in page.read_text("utf-8").splitlines():
        if 'data-label="Measured"' not in line:
            continue
        title = re.search(r'<td class="claim"[^>]*>(.*?)(?:<small>|</td>)', line)
        backend = re.search(r'data-label="Backend">(.*?)</td>', line)
        number = re.search(r'"Measured">(?:ratio|difference) (\S+) \[', line)
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
        pytest.skip("it is an illustration, or no experiment, and predicts nothing")
    if not (ROOT / "results" / name).is_dir():
        pytest.skip("no results are published yet")
    runs = runs_of(name, declared)
    primaries = {primary["claim"]: primary for primary in declared["primary"]}
    rows = [*shown(site / f"generated/experiments/{name}.html")]
    assert {claim for claim, *_ in rows} == set(primaries)
    for claim, backend, median, pairs in rows:
        if " on " in backend:
            continue  # A GPU's runs stand beside the others and decide nothing.
        expected = effect(runs, primaries[claim], backend, declared)
        assert (median, pairs) == (pytest.approx(expected[0], rel=DIGITS), expected[1])


def test_every_metric_that_is_predicted_is_defined_here() -> None:
    predicted = set()
    for name in NAMES:
        declared = tomllib.loads((ROOT / f"experiments/{name}.toml").read_text("utf-8"))
        published = (ROOT / "results" / name).is_dir()
        metrics = [primary["metric"] for primary in declared.get("primary", [])]
        predicted |= {(declared["task"], m) for m in metrics if published}
    assert predicted and predicted <= set(METRICS)


def test_effects_are_paired_by_seed_and_a_diverged_run_counts_as_the_worst() -> None:
    losses = {"a": [1.0, 8.0, 4.0], "b": [1.0, 1.0, 4.0]}
    rows = [
        {
            "limit": arm,
            "seed": seed,
            "backend": "tf",
            "record": {
                "task": "link_prediction",
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
