"""What can be run: experiments, benchmarks, backends and families of cases."""

from __future__ import annotations

import functools
from typing import Any

from rich.console import Console

from harness import declare
from harness.bench import declare as benchmarks
from harness.parity.cases import FAMILIES
from harness.parity.families import BUILT
from lockstep import registry

__all__ = ["everything", "print_everything"]


def everything() -> dict[str, list[dict[str, Any]]]:
    """Return all that there is, as JSON can hold it."""
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
            }
            for experiment in experiments
        ],
        "benchmarks": [
            {"name": b.name, "title": b.title, "question": b.question} for b in timed
        ],
        "backends": [
            {
                "name": backend.name,
                "faces": list(backend.faces),
                "installed": registry.installed(backend.name),
            }
            for backend in registry.BACKENDS.values()
        ],
        "families": [{"name": name, "built": name in BUILT} for name in FAMILIES],
    }


def print_everything(found: dict[str, list[dict[str, Any]]], console: Console) -> None:
    """Print one line each; brackets in a question are no markup of the terminal."""
    write = functools.partial(console.print, markup=False)
    for kind in ("experiment", "benchmark"):
        for entry in found[f"{kind}s"]:
            write(f"{kind:<11} {entry['name']}: {entry['question']}")
    for backend in found["backends"]:
        state = "" if backend["installed"] else " (not installed)"
        faces = ", ".join(backend["faces"])
        write(f"backend     {backend['name']}: {faces}{state}")
    for family in found["families"]:
        state = "" if family["built"] else " (not built yet)"
        write(f"family      {family['name']}{state}")
