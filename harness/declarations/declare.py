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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from harness.declarations.primaries import Primary, prediction_of
from harness.declarations.toml_files import (
    Positive,
    Table,
    Text,
    TomlFile,
    leaves,
    one_of,
    said,
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
        return digest(
            {
                "experiment": self.experiment,
                "task": self.task,
                "config": self.config,
                "seed": self.seed,
            },
            12,
        )


class Scale(Table):
    """The size of a run: seeds 0, 1, ..., and the settings that depend on the scale."""

    model_config = ConfigDict(extra="allow")

    seeds: Annotated[int, Field(strict=True, gt=0, le=FIRST_SEED)]
    because: Text

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the task."""
        return dict(self.model_extra or {})


def known_task(name: str) -> str:
    """Return the name of a task; raise if there is none of this name."""
    if name not in TASKS:
        raise wrong(str(unknown_name("task", name, TASKS)))
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
    scales: Annotated[dict[str, Scale], Field(alias="scale")]
    tune: Tune | None = None
    choices: Mapping[str, Sequence[Choice]] = Field({}, exclude=True)
    primaries: Annotated[
        tuple[Primary, ...], Field(alias="primary", min_length=1, max_length=MOST)
    ] = ()

    @field_validator("scales")
    @classmethod
    def _require_scales(cls, scales: dict[str, Scale]) -> dict[str, Scale]:
        if {*scales} != {*SCALES}:
            got = ", ".join(scales)
            raise wrong(f"expected the scales {', '.join(SCALES)}, got {got}.")
        return scales

    @field_validator("backends")
    @classmethod
    def _require_models(
        cls, backends: tuple[str, ...], known: ValidationInfo
    ) -> tuple[str, ...]:
        task = known.data.get("task")
        for place, backend in enumerate(backends):
            if task and backend not in runs_on(task):
                kind = f"backend of {task}"
                raise wrong(str(unknown_name(kind, backend, runs_on(task))), place)
        return backends

    @model_validator(mode="after")
    def _require_judgement(self) -> Self:
        metrics = metrics_of(self.task) if self.primaries or self.tune else {}
        kind = f"metric of {self.task}"
        if self.tune and self.tune.metric not in metrics:
            text = str(unknown_name(kind, self.tune.metric, metrics))
            raise wrong(text, "tune", "metric")
        names: list[str] = []
        for place, primary in enumerate(self.primaries):
            if primary.metric not in metrics:
                text = str(unknown_name(kind, primary.metric, metrics))
                raise wrong(text, "primary", place, "metric")
            if primary.name in names:
                expected = "a name that no comparison above it has"
                text = f"expected {expected}, got {primary.name!r}; change it there."
                raise wrong(text, "primary", place, "name")
            names.append(primary.name)
        return self

    @model_validator(mode="after")
    def _require_runs(self) -> Self:
        """Expand every scale, so that the task checks all settings."""
        for scale in SCALES:
            self._require_settings(scale)
            try:
                runs = self.validation_runs(scale) or self.runs(scale)
            except (LockstepError, HarnessError) as error:
                raise wrong(str(error), "scale", scale) from error
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
        size = self.scale(scale).settings
        places = {"fixed": self.fixed, "vary": self.vary, f"scale.{scale}": size}
        tables = ", ".join(places)
        if self.tune:
            places["tune.values"] = self.tune.swept
        written = [
            name.partition(".")[0] for place in places.values() for name in place
        ]
        for name in dict.fromkeys([*written, *known]):
            if name not in known:
                raise wrong(str(unknown_name("setting", name, known)))
            having = [place for place, names in places.items() if name in names]
            if len(having) != 1:
                got = " and ".join(having) or "none"
                text = f"expected {name} in one of {tables}, got {got}; write it there."
                raise wrong(text)

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
        own = described(own)
        vary = {**self.vary, "optimizer": [*declared, own]}
        on = tuple(backends) or self.backends[:1]
        return self.model_copy(update={"vary": vary, "backends": on})

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
        return _config(part(self.task, "task").Settings, values)

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
    others = (CLAIMS.name, PAGES.name)
    return [path.stem for path in paths if path.name not in others]


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
        HarnessError: the file is invalid. The sentence names the file, the key and what
            is allowed there.
    """
    file = TomlFile(path)
    return file.checked(Experiment, {**file.content, "name": path.stem})


def _config(settings: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return all settings of a run, checked by the task."""
    try:
        config = dataclasses.asdict(settings(**values))
        json.dumps(config, allow_nan=False)  # Records are written as JSON.
    except (LockstepError, HarnessError):
        raise
    except ValidationError as invalid:
        first = invalid.errors()[0]
        raise HarnessError(said(first, first["loc"])) from invalid
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
        got = f"{type(error).__name__}: {error}".splitlines()[0]
        expected, remedy = "values of the kinds that they take", "compare another file"
        raise HarnessError(sentence("settings", expected, got, remedy)) from error
    return config


def _combinations(vary: Mapping[str, Sequence[Any]]) -> Iterable[dict[str, Any]]:
    for values in itertools.product(*vary.values()):
        yield dict(zip(vary, values, strict=True))
