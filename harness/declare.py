"""Experiments as data: read a TOML file, check it and expand it into runs.

A file says what is the same in every run (``fixed``), what varies (``vary``: every
combination is a run, once a seed) and how much of it each ``scale`` does. The settings
themselves belong to the task, which checks them.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.record import digest
from harness.tasks import TASKS, part, runs_on
from lockstep.registry import BACKENDS
from lockstep.spec.errors import LockstepError, sentence, unknown_name

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "Experiment",
    "Run",
    "Scale",
    "find",
    "known",
    "read",
]

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
SCALES = ("quick", "std", "full")
KEYS = ("question", "title", "task", "backends", "fixed", "vary", "scale")


@dataclass(frozen=True)
class Run:
    """One training run, the same on every backend.

    Attributes:
        config: every setting of the task, defaults filled in.
        seed: from which data, batches, presence and initial weights follow.
    """

    experiment: str
    task: str
    config: Mapping[str, Any]
    seed: int

    @cached_property
    def id(self) -> str:
        """Twelve hexadecimal digits that follow from everything above."""
        return digest(dataclasses.asdict(self), 12)


@dataclass(frozen=True)
class Scale:
    """How much is run: seeds 0, 1, ..., and the settings that depend on the scale."""

    name: str
    seeds: int
    because: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A question and the runs that are to answer it."""

    name: str
    question: str
    title: str
    task: str
    backends: tuple[str, ...]
    fixed: Mapping[str, Any]
    vary: Mapping[str, Sequence[Any]]
    scales: Mapping[str, Scale]

    def runs(self, scale: str, seeds: int | None = None) -> list[Run]:
        """Return the runs of a scale, seed by seed, so that any part is balanced.

        ``seeds`` asks for the first so many seeds only.
        """
        chosen = self.scale(scale)
        count = chosen.seeds if seeds is None else seeds
        if not 0 < count <= chosen.seeds:
            expected = f"1 to {chosen.seeds}, those that scale {scale} declares"
            text = sentence("--seeds", expected, str(count), "give another number")
            raise HarnessError(f"{self.name}: {text}")
        settings = part(self.task, "settings").Settings
        configs = [
            _config(settings, {**self.fixed, **chosen.settings, **varied})
            for varied in _combinations(self.vary)
        ]
        return [
            Run(self.name, self.task, config, seed)
            for seed in range(count)
            for config in configs
        ]

    def scale(self, name: str) -> Scale:
        """Return a scale by name; HarnessError with the nearest name otherwise."""
        if name not in self.scales:
            raise HarnessError(str(unknown_name("scale", name, self.scales)))
        return self.scales[name]


def known(folder: Path = EXPERIMENTS) -> list[str]:
    """Return the names of all experiments."""
    return [path.stem for path in sorted(folder.glob("*.toml"))]


def find(name: str, folder: Path = EXPERIMENTS) -> Experiment:
    """Read the experiment ``name``; HarnessError with the nearest name otherwise."""
    if name not in known(folder):
        raise HarnessError(str(unknown_name("experiment", name, known(folder))))
    return read(folder / f"{name}.toml")


def read(path: Path) -> Experiment:
    """Read and check one file; every scale is expanded once to check all settings.

    Raises:
        HarnessError: the file cannot be used; one sentence names file, key and remedy.
    """
    try:
        content = tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        remedy = "mend the file (its first line is the question)"
        raise HarnessError(sentence(str(path), "TOML", str(error), remedy)) from error
    try:
        named = re.fullmatch(r"[A-Za-z0-9_-]+", path.stem) is not None
        _require(named, "file name", "letters, digits, _ and -", repr(path.stem))
        experiment = _experiment(path.stem, content)
        for scale in experiment.scales:
            runs = experiment.runs(scale)
            twice = len(runs) - len({run.id for run in runs})
            got = f"{twice} of them twice"
            _require(not twice, "vary", "different combinations", got)
    except (LockstepError, HarnessError) as error:
        raise HarnessError(f"{path.name}: {error}") from error
    return experiment


def _experiment(name: str, content: Mapping[str, Any]) -> Experiment:
    _require_keys("key", content, KEYS)
    for key in ("question", "title", "task"):
        text = isinstance(content[key], str) and bool(content[key].strip())
        _require(text, key, "a text", content[key])
    backends = content["backends"]
    listed = isinstance(backends, list) and len(backends) > 0
    _require(listed, "backends", "a list of names", backends)
    if content["task"] not in TASKS:
        raise unknown_name("task", content["task"], TASKS)
    for backend in backends:
        if backend not in BACKENDS:
            raise unknown_name("backend", str(backend), BACKENDS)
        if backend not in runs_on(content["task"]):
            kind = f"backend of {content['task']}"
            raise unknown_name(kind, backend, runs_on(content["task"]))
    scales = content["scale"]
    for key in ("fixed", "vary", "scale"):
        _require(isinstance(content[key], dict), key, "a table", content[key])
    _require_keys("scale", scales, SCALES)
    experiment = Experiment(
        name,
        content["question"],
        content["title"],
        content["task"],
        tuple(content["backends"]),
        content["fixed"],
        content["vary"],
        {scale: _scale(scale, scales[scale]) for scale in SCALES},
    )
    for scale in experiment.scales.values():
        _require_settings(experiment, scale)
    return experiment


def _scale(name: str, content: Mapping[str, Any]) -> Scale:
    where = f"scale.{name}"
    _require(isinstance(content, dict), where, "a table", content)
    settings = dict(content)
    seeds, because = settings.pop("seeds", None), settings.pop("because", None)
    counted = type(seeds) is int and seeds > 0
    _require(counted, f"{where}.seeds", "a number of seeds > 0", seeds)
    _require(isinstance(because, str), f"{where}.because", "a sentence", because)
    return Scale(name, seeds, because, settings)


def _require_settings(experiment: Experiment, scale: Scale) -> None:
    """Every setting of the task stands exactly once in fixed, vary and the scale."""
    settings = part(experiment.task, "settings").Settings
    known = [field.name for field in dataclasses.fields(settings)]
    tables = {
        "fixed": experiment.fixed,
        "vary": experiment.vary,
        f"scale.{scale.name}": scale.settings,
    }
    for table, content in tables.items():
        for key in content:
            if key not in known:
                raise unknown_name(f"setting in {table}", key, known)
    for name in known:
        places = [table for table, content in tables.items() if name in content]
        got = " and ".join(places) or "none"
        _require(len(places) == 1, name, f"one of {', '.join(tables)}", got)
    for key, values in experiment.vary.items():
        listed = isinstance(values, list) and values
        _require(bool(listed), f"vary.{key}", "a list of values", values)


def _require_keys(kind: str, content: Mapping[str, Any], known: Iterable[str]) -> None:
    for key in content:
        if key not in known:
            raise unknown_name(kind, key, known)
    for key in known:
        _require(key in content, key, f"a {kind} of this name", "none")


def _require(claim: bool, subject: str, expected: str, got: object) -> None:
    if not claim:
        text = got if isinstance(got, str) else repr(got)
        raise HarnessError(sentence(subject, expected, text, "write it there"))


def _config(settings: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a run, checked by the task.

    Python's own complaint about a value of another kind becomes a sentence.
    """
    try:
        config = dataclasses.asdict(settings(**values))
        json.dumps(config, allow_nan=False)  # Records are written as JSON.
    except (LockstepError, HarnessError):
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        expected, remedy = "values of the kinds that they take", "compare another file"
        raise HarnessError(sentence("settings", expected, got, remedy)) from error
    return config


def _combinations(vary: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    for values in itertools.product(*vary.values()):
        yield dict(zip(vary, values, strict=True))
