"""List what can be run: experiments, benchmarks, backends and families of cases."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.bench import declare as benchmarks
from harness.bench.declare import Benchmark
from harness.declarations import declare
from harness.declarations.declare import Experiment
from harness.declarations.tune import Tune
from harness.errors import HarnessError
from harness.judgement.counted import counted_records
from harness.parity.cases import FAMILIES
from harness.records.files import RESULTS, folder
from lockstep import registry


def everything(root: Path = RESULTS) -> dict[str, list[dict[str, Any]]]:
    """Return everything that can be run, as a JSON object.

    ``root`` is the folder of the results whose records are counted.
    """
    experiments = [declare.find(name) for name in declare.known()]
    timed = [benchmarks.find(name) for name in benchmarks.known()]
    return {
        "experiments": [
            {
                "name": experiment.name,
                "title": experiment.title,
                "question": experiment.question,
                "task": experiment.task,
                "backends": list(experiment.backends),
                "seeds": {name: s.seeds for name, s in experiment.scales.items()},
                "budget_minutes": experiment.budget_minutes,
                "tune": _sweep(experiment.tune),
                **_counts(experiment, root),
            }
            for experiment in experiments
        ],
        "benchmarks": [
            {
                "name": benchmark.name,
                "title": benchmark.title,
                "question": benchmark.question,
                **_counts(benchmark, root),
            }
            for benchmark in timed
        ],
        "backends": [
            {
                "name": backend.name,
                "modes": list(backend.modes),
                "installed": registry.installed(backend.name),
            }
            for backend in registry.BACKENDS.values()
        ],
        "families": [{"name": name} for name in FAMILIES],
    }


def _sweep(tune: Tune | None) -> dict[str, Any] | None:
    if tune is None:
        return None
    sweep = {"path": tune.path, "values": tune.values}
    return {"seeds": tune.seeds, "metric": tune.metric, **sweep}


def _counts(of: Experiment | Benchmark, root: Path) -> dict[str, Any]:
    """Return the number of records, published and the user's own.

    If a file cannot be read, the entry has the error instead.
    """
    counts: dict[str, Any] = {}
    for place, publish in (("published", True), ("local", False)):
        try:
            home = folder(of.name, publish, root)
            counts[place] = {"records": len(counted_records(of, home))}
        except HarnessError as error:
            counts[place] = {"records": None, "problem": str(error)}
    return counts


def _planned(entry: Mapping[str, Any]) -> str:
    """Return an experiment's budget and its tuned setting as text."""
    budget = f"at most {entry['budget_minutes']:g} min at scale std"
    sweep = entry["tune"]
    if sweep is None:
        return budget
    return f"{budget}; tunes {sweep['path']}, {len(sweep['values'])} values"


def _counted(entry: Mapping[str, Any]) -> str:
    """Return the counts of an entry as text."""
    parts = []
    for place in ("published", "local"):
        counts = entry[place]
        if "problem" in counts:
            parts.append(f"{place} records cannot be read: {counts['problem']}")
        elif counts["records"] or place == "published":
            parts.append(f"{counts['records']} {place} records")
    return "; ".join(parts)


def print_everything(lists: dict[str, list[dict[str, Any]]], console: Console) -> None:
    """Print one line per entry. Brackets in a question are not read as markup."""
    write = functools.partial(console.print, markup=False)
    for kind in ("experiment", "benchmark"):
        for entry in lists[f"{kind}s"]:
            write(f"{kind:<11} {entry['name']}: {entry['question']}")
            planned = [_planned(entry)] if "tune" in entry else []
            write(f"{'':<11} {'; '.join([*planned, _counted(entry)])}")
    for backend in lists["backends"]:
        state = "" if backend["installed"] else " (not installed)"
        modes = ", ".join(backend["modes"])
        write(f"backend     {backend['name']}: {modes}{state}")
    for family in lists["families"]:
        write(f"family      {family['name']}")
