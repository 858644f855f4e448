"""Experiments as data: read a TOML file, check it and expand it into runs.

A file declares which settings are the same in every run (``fixed``), which vary
(``vary``: every combination is an arm, run once per seed), and the size of each
``scale``. One setting may be tuned for each arm by a sweep (``tune``). The task defines
the settings and checks them. A file may also predict what its runs will show
(``primary``).
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from harness.declarations.primaries import Primary, prediction_of
from harness.declarations.toml_files import (
    Key,
    Positive,
    Table,
    Text,
    TomlFile,
    first_error,
    leaves,
    one_of,
    require_known,
    wrong,
)
from harness.declarations.tune import FIRST_SEED, Choice, Tune
from harness.errors import HarnessError
from harness.records.metrics import metrics_of
from harness.records.record import digest
from harness.tasks import TASKS, part, runs_on
from harness.tasks.own import described
from lockstep.errors import LockstepError, sentence, unknown_name
from lockstep.registry import BACKENDS

EXPERIMENTS = Path(__file__).parent.parent.parent / "experiments"
CLAIMS = EXPERIMENTS / "claims.toml"
PAGES = EXPERIMENTS / "pages.toml"
"""The claims that the experiments test. It is not an experiment itself."""

SCALES = ("quick", "std", "full")
MOST = 5
"""Limit of comparisons per page: each one makes all others harder to confirm."""


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
        return digest(dataclasses.asdict(self), 12)


class Scale(Table):
    """The size of a run: seeds 0, 1, ..., and the settings that depend on the scale."""

    model_config = ConfigDict(extra="allow")

    seeds: Annotated[int, Field(strict=True, gt=0, le=FIRST_SEED)]
    because: Text

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the task."""
        return dict(self.model_extra or {})


class Scales(Table):
    """The scales of an experiment."""

    quick: Scale
    std: Scale
    full: Scale


def known_task(name: str) -> str:
    """Return the name of a task; raise if there is none of this name."""
    require_known("task", name, TASKS)
    return name


class Experiment(Table):
    """A question and the runs that answer it.

    Attributes:
        backends: in order. Values are tuned on the first one, and it is judged.
        budget_minutes: time limit for the runs of scale std on two cores.
        tune: the sweep of every arm; None if nothing is tuned.
        choices: the values chosen from records, by scale (``tune.with_choices``).
        primaries: the comparisons that are judged, with their predictions. Without any,
            there is no verdict.
    """

    name: str
    question: Text
    title: Text
    task: Annotated[str, AfterValidator(known_task)]
    backends: Annotated[
        tuple[Annotated[str, one_of("backend", BACKENDS)], ...], Field(min_length=1)
    ]
    budget_minutes: Positive
    fixed: dict[str, Any]
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]]
    scale_: Annotated[Scales, Field(alias="scale")]
    tune: Tune | None = None
    choices: Mapping[str, Sequence[Choice]] = Field({}, exclude=True)
    primaries: Annotated[
        tuple[Primary, ...], Field(alias="primary", min_length=1, max_length=MOST)
    ] = ()

    @model_validator(mode="after")
    def _require_names(self) -> Self:
        """Require backends and metrics that the task has."""
        backends, metrics = runs_on(self.task), metrics_of(self.task)
        for place, backend in enumerate(self.backends):
            kind = f"backend of {self.task}"
            require_known(kind, backend, backends, "backends", place)
        kind, names = f"metric of {self.task}", set()
        if self.tune:
            require_known(kind, self.tune.metric, metrics, "tune", "metric")
        for place, primary in enumerate(self.primaries):
            require_known(kind, primary.metric, metrics, "primary", place, "metric")
            if primary.name in names:
                expected = "a name that no comparison above it has"
                text = f"expected {expected}, got {primary.name!r}; change it there."
                raise wrong(text, "primary", place, "name")
            names.add(primary.name)
        return self

    @model_validator(mode="after")
    def _require_runs(self) -> Self:
        """Expand every scale, so that the task checks all settings."""
        for scale in SCALES:
            self._require_settings(scale)
            runs = self.validation_runs(scale) or self.runs(scale)
            twice = len(runs) - len({run.id for run in runs})
            if twice:
                text = f"expected different combinations, got {twice} of them twice."
                raise wrong(text, "vary")
            tuned = self.tune.path if self.tune else ""
            arms = [dict(leaves(arm)) for arm in self.full_arms(scale)]
            arms = [{n: v for n, v in arm.items() if n != tuned} for arm in arms]
            for place, primary in enumerate(self.primaries):
                primary.require_arms(arms, "primary", place)
        return self

    def _require_settings(self, scale: str) -> None:
        """Require each setting of the task once in fixed, vary and the scale."""
        settings = part(self.task, "task").Settings
        known = [field.name for field in dataclasses.fields(settings)]
        tables = {
            "fixed": self.fixed,
            "vary": self.vary,
            f"scale.{scale}": self.scale(scale).settings,
        }
        expected = f"one of {', '.join(tables)}"
        if self.tune:
            tables["tune.values"] = self.tune.swept
        for table, content in tables.items():
            for path in content:
                name = path.partition(".")[0]
                require_known("setting", name, known, *table.split("."), path)
        for name in known:
            having = [table for table, content in tables.items() if name in content]
            if len(having) != 1:
                got = " and ".join(having) or "none"
                text = f"expected {name} in {expected}, got {got}; write it there."
                raise wrong(text, *(having or ["fixed"])[-1].split("."))

    @property
    def scales(self) -> dict[str, Scale]:
        """The scales by name."""
        return {name: getattr(self.scale_, name) for name in SCALES}

    def scale(self, name: str) -> Scale:
        """Return a scale by name; HarnessError with the nearest name if unknown."""
        if name not in SCALES:
            raise HarnessError(str(unknown_name("scale", name, SCALES)))
        return self.scales[name]

    @property
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
        return self._runs(self.full_arms(scale), range(count))

    def validation_runs(self, scale: str) -> list[Run]:
        """Return the runs from which values are chosen: each arm at each value."""
        if self.tune is None:
            return []
        return self._runs(self._swept(scale), self.tune.validation_seeds)

    def possible_runs(self, scale: str) -> list[Run]:
        """Return all runs of a scale, including those of values not chosen."""
        if self.tune is None:
            return self.runs(scale)
        seeds = range(self.scale(scale).seeds)
        return [
            *self.validation_runs(scale),
            *self._runs(self._swept(scale), seeds),
        ]

    def arms(self, scale: str) -> list[dict[str, Any]]:
        """Return the settings of every arm, without the tuned value."""
        same = {**self.fixed, **self.scale(scale).settings}
        return [
            {**same, **dict(zip(self.vary, values, strict=True))}
            for values in itertools.product(*self.vary.values())
        ]

    def full_arms(self, scale: str) -> list[dict[str, Any]]:
        """Return the arms with defaults. A tuned setting has its first value."""
        if self.tune is not None:
            return self._swept(scale)[:: len(self.tune.values)]
        return [self._config(arm, scale) for arm in self.arms(scale)]

    def _swept(self, scale: str) -> list[dict[str, Any]]:
        """Return each arm at each value of the tuned setting."""
        assert self.tune is not None
        return [
            self._config(self.tune.settings(arm, value), scale)
            for arm in self.arms(scale)
            for value in self.tune.values
        ]

    def _config(self, values: Mapping[str, Any], scale: str) -> dict[str, Any]:
        """Return all settings of a run, checked by the task."""
        try:
            config = dataclasses.asdict(part(self.task, "task").Settings(**values))
            json.dumps(config, allow_nan=False)  # Records are written as JSON.
        except ValidationError as invalid:
            key, text = first_error(invalid)
            raise wrong(text, *self._place(key, scale)) from invalid
        except (LockstepError, HarnessError) as error:
            raise wrong(str(error)) from error
        except (
            TypeError,
            ValueError,
            KeyError,
            AttributeError,
            OverflowError,
        ) as error:
            got = f"{type(error).__name__}: {error}".splitlines()[0]
            expected = "values of the kinds that they take"
            text = sentence("settings", expected, got, "compare another file")
            raise wrong(text) from error
        return config

    def _place(self, key: Key, scale: str) -> Key:
        """Return the key in the file of a setting; none for all of them together."""
        for table, content in (("fixed", self.fixed), ("vary", self.vary)):
            if key and key[0] in content:
                return table, *key
        return ("scale", scale, *key) if key else ()

    def _runs(self, configs: Sequence[Mapping[str, Any]], seeds: range) -> list[Run]:
        return [
            Run(self.name, self.task, config, seed)
            for seed in seeds
            for config in configs
        ]

    @property
    def varies_optimizers(self) -> bool:
        """Whether arms have different optimizers, each a table with a name."""
        declared = self.vary.get("optimizer", [None])
        return all(isinstance(each, Mapping) for each in declared)

    def with_optimizer(self, place: str, backends: Sequence[str] = ()) -> Experiment:
        """Return the experiment with further arms, of the optimizer of a user's file.

        If the learning rate is not tuned, it is that of the first optimizer that has
        one.

        Args:
            place: ``mine.py:make``, see ``harness.tasks.own``.
            backends: its backends; by default the first one. Values are tuned on the
                first.

        Raises:
            HarnessError: the file cannot be used, or optimizers are no settings here.
        """
        if not self.varies_optimizers:
            having = [name for name in known() if find(name).varies_optimizers]
            expected, remedy = f"one of {', '.join(having)}", "choose one of these"
            raise HarnessError(sentence("--optimizer", expected, self.name, remedy))
        declared: list[Any] = self.vary["optimizer"]
        own: dict[str, Any] = {"file": place}
        rates = [each["learning_rate"] for each in declared if "learning_rate" in each]
        if rates:
            own["learning_rate"] = rates[0]
        vary = {**self.vary, "optimizer": [*declared, described(own)]}
        on = tuple(backends) or self.backends[:1]
        return self.model_copy(update={"vary": vary, "backends": on})


def known(folder: Path = EXPERIMENTS) -> list[str]:
    """Return the names of all experiments."""
    others = (CLAIMS.name, PAGES.name)
    return sorted(p.stem for p in folder.glob("*.toml") if p.name not in others)


@cache
def find(name: str, folder: Path = EXPERIMENTS) -> Experiment:
    """Read an experiment. Raise HarnessError with the nearest name if it is unknown."""
    if name not in known(folder):
        raise HarnessError(str(unknown_name("experiment", name, known(folder))))
    return read(folder / f"{name}.toml")


def read(path: Path) -> Experiment:
    """Read and check one file. Every scale is expanded to check all settings.

    Raises:
        HarnessError: the file is invalid. The sentence names the file, the line, the
            key and what is allowed there.
    """
    file = TomlFile(path)
    return file.checked(Experiment, {**file.content, "name": path.stem})
