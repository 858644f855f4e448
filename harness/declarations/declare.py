"""Experiments as data: read a TOML file, check it and expand it into runs.

A file declares which settings are the same in every run (``fixed``), which vary
(``vary``: every combination is an arm, run once per seed), and the size of each
``scale``. One setting may be tuned for each arm by a sweep (``tune``). The task defines
the settings and checks them. A file also predicts what its runs will show
(``primary``), or gives the reason why nothing is judged (``kind``, ``reason``).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from harness.declarations.primaries import (
    Primary,
    prediction_of,
    read_primaries,
    read_reason,
)
from harness.declarations.read_tune import read_tune, require_place
from harness.declarations.toml_files import Key, TomlFile, dotted
from harness.declarations.tune import FIRST_SEED, Choice, Tune
from harness.errors import HarnessError
from harness.records.record import digest
from harness.tasks import TASKS, part, runs_on
from lockstep.errors import LockstepError, sentence, unknown_name
from lockstep.registry import BACKENDS

__all__ = [
    "CLAIMS",
    "EXPERIMENTS",
    "SCALES",
    "Experiment",
    "Run",
    "Scale",
    "find",
    "known",
    "read",
]

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
CLAIMS = EXPERIMENTS / "claims.toml"
"""The claims that the experiments test. It is not an experiment itself."""

SCALES = ("quick", "std", "full")
REQUIRED = (
    *("question", "title", "task", "backends", "budget_minutes"),
    *("fixed", "vary", "scale"),
)
KEYS = (*REQUIRED, "tune", "kind", "reason", "primary")


@dataclass(frozen=True)
class Run:
    """One training run, the same on every backend.

    Attributes:
        config: every setting of the task, including defaults.
        seed: determines data, batches, presence and initial weights.
    """

    experiment: str
    task: str
    config: Mapping[str, Any]
    seed: int

    @cached_property
    def id(self) -> str:
        """Twelve hexadecimal digits, computed from all of the above."""
        return digest(
            {
                "experiment": self.experiment,
                "task": self.task,
                "config": self.config,
                "seed": self.seed,
            },
            12,
        )


@dataclass(frozen=True)
class Scale:
    """The size of a run: seeds 0, 1, ..., and the settings that depend on the scale."""

    name: str
    seeds: int
    because: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A question and the runs that answer it.

    Attributes:
        backends: in order. Values are tuned on the first one, and it is judged.
        budget_minutes: time limit for the runs of scale std on two cores.
        tune: the sweep of every arm; None if nothing is tuned.
        choices: the values chosen from records, by scale (``tune.with_choices``).
        reason: why an illustration has no verdict; otherwise empty.
        primaries: the comparisons that are judged, with their predictions; empty for an
            illustration.
    """

    name: str
    question: str
    title: str
    task: str
    backends: tuple[str, ...]
    budget_minutes: float
    fixed: Mapping[str, Any]
    vary: Mapping[str, Sequence[Any]]
    scales: Mapping[str, Scale]
    tune: Tune | None = None
    choices: Mapping[str, Sequence[Choice]] = field(default_factory=dict)
    reason: str = ""
    primaries: Sequence[Primary] = ()

    @cached_property
    def prediction(self) -> str:
        """The digest of the predictions; empty for an illustration."""
        return prediction_of(self.primaries)

    def runs(self, scale: str, seeds: int | None = None) -> list[Run]:
        """Return the runs of a scale, seed by seed, so that any part is balanced.

        If a value is tuned, an arm has no runs until its value is chosen. ``seeds``
        limits the runs to the first seeds.
        """
        declared = self.scale(scale).seeds
        count = declared if seeds is None else seeds
        if not 0 < count <= declared:
            expected = f"1 to {declared}, those that scale {scale} declares"
            text = sentence("--seeds", expected, str(count), "give another number")
            raise HarnessError(f"{self.name}: {text}")
        if self.tune is not None:
            chosen = self.choices.get(scale, ())
            return self._runs([choice.config for choice in chosen], range(count))
        configs = [self._config(arm) for arm in self.arms(scale)]
        return self._runs(configs, range(count))

    def validation_runs(self, scale: str) -> list[Run]:
        """Return the runs from which values are chosen: each arm at each value."""
        if self.tune is None:
            return []
        configs = [
            self._config(self.tune.settings(arm, value))
            for arm in self.arms(scale)
            for value in self.tune.values
        ]
        return self._runs(configs, self.tune.validation_seeds)

    def possible_runs(self, scale: str) -> list[Run]:
        """Return all runs of a scale, including those of values not chosen."""
        if self.tune is None:
            return self.runs(scale)
        validation = self.validation_runs(scale)
        first = self.tune.validation_seeds[0]
        configs = [run.config for run in validation if run.seed == first]
        seeds = range(self.scale(scale).seeds)
        return [*validation, *self._runs(configs, seeds)]

    def arms(self, scale: str) -> list[dict[str, Any]]:
        """Return the settings of every arm, without the tuned value."""
        same = {**self.fixed, **self.scale(scale).settings}
        return [{**same, **varied} for varied in _combinations(self.vary)]

    def full_arms(self, scale: str) -> list[dict[str, Any]]:
        """Return the arms with defaults. A tuned setting has its first value."""
        tune = self.tune
        arms = self.arms(scale)
        if tune is not None:
            arms = [tune.settings(arm, tune.values[0]) for arm in arms]
        return [self._config(arm) for arm in arms]

    def _config(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return _config(part(self.task, "settings").Settings, values)

    def _runs(self, configs: Sequence[Mapping[str, Any]], seeds: range) -> list[Run]:
        return [
            Run(self.name, self.task, config, seed)
            for seed in seeds
            for config in configs
        ]

    def scale(self, name: str) -> Scale:
        """Return a scale by name; HarnessError with the nearest name if unknown."""
        if name not in self.scales:
            raise HarnessError(str(unknown_name("scale", name, self.scales)))
        return self.scales[name]


def known(folder: Path = EXPERIMENTS) -> list[str]:
    """Return the names of all experiments."""
    paths = sorted(folder.glob("*.toml"))
    return [path.stem for path in paths if path.name != CLAIMS.name]


def find(name: str, folder: Path = EXPERIMENTS) -> Experiment:
    """Read an experiment. Raise HarnessError with the nearest name if it is unknown.

    A file is read again only if it has changed.
    """
    if name not in known(folder):
        raise HarnessError(str(unknown_name("experiment", name, known(folder))))
    path = folder / f"{name}.toml"
    about = path.stat()
    return _read_once(path, about.st_size, about.st_mtime_ns)


@cache
def _read_once(path: Path, size: int, changed: int) -> Experiment:
    return read(path)


def read(path: Path) -> Experiment:
    """Read and check one file. Every scale is expanded to check all settings.

    Raises:
        HarnessError: the file is invalid. The sentence names the file, the line, the
            key, what is allowed there and what to do.
    """
    file = TomlFile(path)
    if not re.fullmatch(r"[A-Za-z0-9_-]+", path.stem):
        expected, remedy = "letters, digits, _ and -", "give it another name"
        text = sentence("file name", expected, repr(path.stem), remedy)
        raise HarnessError(f"{path.name}: {text}")
    experiment = _experiment(path.stem, file)
    for scale in experiment.scales:
        try:
            runs = experiment.validation_runs(scale) or experiment.runs(scale)
        except (LockstepError, HarnessError) as error:
            raise file.placed(error, ("scale", scale)) from error
        twice = len(runs) - len({run.id for run in runs})
        if twice:
            got = f"{twice} of them twice"
            raise file.error(("vary",), "different combinations", got)
    if experiment.reason:
        return experiment
    tuned = experiment.tune.path if experiment.tune else ""
    scales = [experiment.full_arms(scale) for scale in experiment.scales]
    primaries = read_primaries(file, experiment.task, scales, tuned)
    return replace(experiment, primaries=primaries)


def _experiment(name: str, file: TomlFile) -> Experiment:
    file.require_keys((), KEYS, required=REQUIRED)
    content = file.content
    for key in ("question", "title", "task"):
        text = isinstance(content[key], str) and bool(content[key].strip())
        file.require(text, (key,), "a text")
    if content["task"] not in TASKS:
        raise file.unknown(("task",), "task", TASKS)
    _require_backends(file)
    file.require_keys(("scale",), SCALES, required=SCALES)
    experiment = Experiment(
        name,
        content["question"],
        content["title"],
        content["task"],
        tuple(content["backends"]),
        _budget(file),
        content["fixed"],
        content["vary"],
        {scale: _scale(scale, file) for scale in SCALES},
        read_tune(file, content["task"]),
        reason=read_reason(file),
    )
    for scale in SCALES:
        _require_settings(file, scale, experiment.tune)
        if experiment.tune is not None:
            require_place(file, experiment.tune, experiment.arms(scale))
    return experiment


def _budget(file: TomlFile) -> float:
    """Return the time limit, in minutes, for the runs of scale std on two cores."""
    minutes = file.content["budget_minutes"]
    number = type(minutes) in (int, float) and 0 < minutes < math.inf
    file.require(number, ("budget_minutes",), "a number of minutes > 0")
    return float(minutes)


def _require_backends(file: TomlFile) -> None:
    backends, task = file.content["backends"], file.content["task"]
    listed = isinstance(backends, list) and len(backends) > 0
    file.require(listed, ("backends",), "a list of names")
    for k, backend in enumerate(backends):
        if backend not in BACKENDS:
            raise file.unknown(("backends", k), "backend", BACKENDS)
        if backend not in runs_on(task):
            raise file.unknown(("backends", k), f"backend of {task}", runs_on(task))


def _scale(name: str, file: TomlFile) -> Scale:
    key = ("scale", name)
    file.require(isinstance(file.value(key), dict), key, "a table")
    settings = dict(file.value(key))
    seeds, because = settings.pop("seeds", None), settings.pop("because", None)
    counted = type(seeds) is int and 0 < seeds <= FIRST_SEED
    expected = f"a number of seeds from 1 to {FIRST_SEED}, where those of [tune] begin"
    file.require(counted, (*key, "seeds"), expected)
    file.require(isinstance(because, str), (*key, "because"), "a sentence")
    return Scale(name, seeds, because, settings)


def _require_settings(file: TomlFile, scale: str, tune: Tune | None) -> None:
    """Require each setting of the task exactly once in fixed, vary and the scale.

    The setting of ``tune`` is declared there instead, unless it is part of another one.
    """
    settings = part(file.content["task"], "settings").Settings
    known = [field.name for field in dataclasses.fields(settings)]
    tables: list[Key] = [("fixed",), ("vary",), ("scale", scale)]
    for key in tables:
        more = ("seeds", "because") if "scale" in key else ()
        file.require_keys(key, [*known, *more])
    if tune is not None and tune.path.partition(".")[0] not in known:
        raise file.unknown(("tune", "values", tune.path), "setting", known)
    names = [dotted(key) for key in tables]
    places_of = {key: file.value(key) for key in tables}
    places_of |= {} if tune is None else {("tune", "values"): [tune.path]}
    for name in known:
        places = [key for key, settings in places_of.items() if name in settings]
        if len(places) != 1:
            got = " and ".join(map(dotted, places)) or "none"
            where = (*places[-1], name) if places else ("fixed",)
            text = sentence(name, f"one of {', '.join(names)}", got, "write it there")
            raise HarnessError(f"{file.name}, line {file.line(*where)}: {text}")
    for name, values in file.content["vary"].items():
        listed = isinstance(values, list) and len(values) > 0
        file.require(listed, ("vary", name), "a list of values")


def _config(settings: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a run, checked by the task.

    Python's own errors about values of other types become a sentence.
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
