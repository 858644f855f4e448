"""An experiment whose runs train nothing, and the fixture that makes its task known."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import tasks
from harness.declarations import declare
from harness.declarations.declare import SCALES, Experiment
from harness.records.files import read
from harness.records.record import Record
from harness.runs import worker
from harness.tests import toy_worker
from lockstep import registry

TEXT = """question = "Does it go on?"
title = "Toy"
task = "toy"
backends = ["reference", "pytorch"]
budget_minutes = 1
[fixed]
steps = 1
[vary]
arm = ["plain", "wrapped"]
"""
PREDICTION = """
[[primary]]
name = "worse"
claim = "The wrapped arm is worse"
metric = "loss"
arm = { arm = "wrapped" }
against = { arm = "plain" }
effect = "difference"
low = 0.0
because = "it is made up so"
"""
SWEEP = """
[tune]
seeds = 3
metric = "loss"
values = { rate = [0.01, 0.03, 0.1, 0.3, 1.0] }
"""


@pytest.fixture
def toy_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let declarations and workers know the task; neither backend is imported."""
    monkeypatch.setattr(declare, "TASKS", (*tasks.TASKS, "toy"))
    monkeypatch.setattr(declare, "runs_on", lambda task: ["reference", "pytorch"])
    paths = [*tasks.__path__, str(toy_worker.FOLDER)]
    monkeypatch.setattr(tasks, "__path__", paths)
    monkeypatch.setattr(worker, "MODULE", "harness.tests.toy_worker")
    monkeypatch.setattr(registry, "installed", lambda name: True)


def toy(folder: Path, tuned: bool = False) -> Experiment:
    """Return an experiment of two arms on two backends, with four seeds."""
    text = TEXT if tuned else TEXT.replace("steps = 1", "steps = 1\nrate = 0.1")
    for name in SCALES:
        text += f'[scale.{name}]\nseeds = 4\nbecause = "toy"\n'
    path = folder / "toy.toml"
    path.write_text(text + PREDICTION + (SWEEP if tuned else ""), "utf-8")
    return declare.read(path)


def records(
    root: Path, backend: str = "reference", home: str = "local/toy"
) -> list[Record]:
    """Return the records of the experiment."""
    return read(root / home / f"{backend}.jsonl")
