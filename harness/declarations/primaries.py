"""Primary comparisons: the predictions of an experiment, declared in its TOML file.

A ``[[primary]]`` names two arms, a metric, and an interval that is predicted to contain
the effect. The rule that judges it is in ``harness.judgement.verdicts``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from harness.declarations.toml_files import Key, TomlFile
from harness.records.metrics import metrics_of
from harness.records.record import digest

__all__ = [
    "MOST",
    "Arm",
    "Primary",
    "matches",
    "prediction_of",
    "read_primaries",
    "read_reason",
]

MOST = 5
"""Limit of comparisons per page: each one makes all others harder to confirm."""

KINDS = ("experiment", "illustration")
LOG_RATIO, DIFFERENCE, SHARE, SLOPE = (
    "log ratio",
    "difference",
    "share of settings",
    "slope per doubling",
)
EFFECTS = (LOG_RATIO, DIFFERENCE, SHARE, SLOPE)
OVER_SETTINGS = (SHARE, SLOPE)
"""Effects that are computed from several values of the settings in ``over``."""

REQUIRED = ("name", "claim", "metric", "arm", "effect", "because")
KEYS = (*REQUIRED, "against", "low", "high", "over", "margin", "control")
WORDING = ("claim", "because")
"""Keys that do not affect a verdict. Rewording them does not change the prediction."""

Arm = Mapping[str, Any]
"""Settings by dotted paths that distinguish an arm from all others."""


@dataclass(frozen=True)
class Primary:
    """One comparison and its prediction.

    Attributes:
        name: short name, for links.
        claim: one sentence that the prediction makes precise.
        metric: a name in ``METRICS`` of the task.
        arm: the arm that is judged.
        against: the arm that it is compared with. Empty if the metric is already a
            comparison within each run; it is then compared with 1 or 0.
        effect: paired by seed. ``log ratio`` or ``difference`` of the metric;
            ``share of settings``: of all values of the settings in ``over``, the share
            with which ``arm`` is better than ``against`` (a tie counts half);
            ``slope per doubling``: change of the metric of ``arm`` per doubling of the
            one setting in ``over``, by least squares.
        low, high: predicted bounds of the effect. A bound that is not declared is
            infinite.
        over: settings that the two last effects combine.
        margin: an effect within +-margin makes no difference in practice. 0: not
            tested.
        control: whether it shows that the runs can test the claim at all. If it is not
            confirmed, the claim is undecided.
        because: the source of the prediction.
    """

    name: str
    claim: str
    metric: str
    arm: Arm
    effect: Literal[
        "log ratio", "difference", "share of settings", "slope per doubling"
    ]
    because: str
    against: Arm = field(default_factory=dict)
    low: float = -math.inf
    high: float = math.inf
    over: Sequence[str] = ()
    margin: float = 0.0
    control: bool = False


def prediction_of(primaries: Sequence[Primary]) -> str:
    """Return a digest of the predictions, or "" if there are none.

    It depends on everything that decides a verdict, including the order, but not on
    the wording.
    """
    if not primaries:
        return ""
    judged = [
        {key: value for key, value in asdict(primary).items() if key not in WORDING}
        for primary in primaries
    ]
    for content in judged:
        ends = {end: str(content[end]) for end in ("low", "high")}
        content.update(ends)  # JSON has no infinity.
        for later in ("over", "margin", "control"):  # Older records do not know them.
            if not content[later]:
                del content[later]
    return digest(judged, 12)


def matches(arm: Arm, config: Mapping[str, Any]) -> bool:
    """Whether a configuration has every setting of an arm."""
    settings = _flat(config)
    return all(path in settings and settings[path] == v for path, v in arm.items())


def read_reason(file: TomlFile) -> str:
    """Return why an illustration has no verdict, or "" for an experiment.

    Raises:
        HarnessError: ``kind`` and ``reason`` contradict each other, or an illustration
            has comparisons, or an experiment has none.
    """
    kind, reason = file.content.get("kind", KINDS[0]), file.content.get("reason", "")
    if kind not in KINDS:
        raise file.unknown(("kind",), "kind", KINDS)
    file.require(isinstance(reason, str), ("reason",), "a sentence")
    illustrates = kind == "illustration"
    if illustrates != bool(reason.strip()):
        expected = 'kind = "illustration" and a reason, or neither'
        remedy = "say why there is nothing to judge, or predict what runs will show"
        got = f"kind = {kind!r} and reason = {reason!r}"
        raise file.error(("reason" if reason else "kind",), expected, got, remedy)
    if illustrates == ("primary" in file.content):
        expected = "[[primary]] comparisons in an experiment, none in an illustration"
        got = f'{"some" if illustrates else "none"} and kind = "{kind}"'
        remedy = "predict what runs will show, or say why there is nothing to judge"
        raise file.error(("primary",), expected, got, remedy)
    return str(reason)


def read_primaries(
    file: TomlFile, task: str, scales: Sequence[Sequence[Arm]], tuned: str = ""
) -> tuple[Primary, ...]:
    """Read and check the primary comparisons of an experiment's file.

    Args:
        file: the file.
        task: the name of the experiment's task.
        scales: all arms of each scale, with every setting.
        tuned: path of a setting that is tuned separately for each arm.

    Raises:
        HarnessError: a comparison cannot be judged.
    """
    tables = file.content["primary"]
    if not (isinstance(tables, list) and 0 < len(tables) <= MOST):
        got = f"{len(tables)} of them" if isinstance(tables, list) else repr(tables)
        remedy = "keep those that the question needs; others are described"
        raise file.error(("primary",), f"1 to {MOST} [[primary]] tables", got, remedy)
    settings = [[_without(_flat(arm), tuned) for arm in arms] for arms in scales]
    primaries: list[Primary] = []
    for k in range(len(tables)):
        key: Key = ("primary", k)
        primary = _primary(file, key, task)
        if primary.name in [other.name for other in primaries]:
            expected = "a name that no comparison above it has"
            raise file.error((*key, "name"), expected, repr(primary.name))
        for arms in settings:
            _require_one(file, (*key, "arm"), primary.arm, arms, primary.over)
            if primary.against:
                other = primary.against
                _require_one(file, (*key, "against"), other, arms, primary.over)
        primaries.append(primary)
    return tuple(primaries)


def _primary(file: TomlFile, key: Key, task: str) -> Primary:
    """Read one comparison. Its arms are checked by :func:`_require_one`."""
    file.require_keys(key, KEYS, required=REQUIRED)
    table = file.value(key)
    for name in ("name", "claim", "because"):
        text = isinstance(table[name], str) and bool(table[name].strip())
        file.require(text, (*key, name), "a text")
    metrics = metrics_of(task)
    if table["metric"] not in metrics:
        raise file.unknown((*key, "metric"), f"metric of {task}", metrics)
    if table["effect"] not in EFFECTS:
        raise file.unknown((*key, "effect"), "effect", EFFECTS)
    for name in {"arm", "against"} & table.keys():
        settings = isinstance(table[name], Mapping) and len(table[name]) > 0
        file.require(settings, (*key, name), "a table of settings")
    if table["arm"] == table.get("against"):
        expected = "another arm than the one it is compared with"
        raise file.error((*key, "against"), expected, "the same")
    _require_interval(file, key)
    _require_over(file, key)
    _require_margin(file, key)
    control = isinstance(table.get("control", False), bool)
    file.require(control, (*key, "control"), "true or false")
    arms = {arm: _flat(table[arm]) for arm in ("arm", "against") if arm in table}
    ends = {end: float(table[end]) for end in ("low", "high") if end in table}
    return Primary(**{**table, **arms, **ends})


def _require_interval(file: TomlFile, key: Key) -> None:
    table = file.value(key)
    ends = [end for end in ("low", "high") if end in table]
    for end in ends:
        number = type(table[end]) in (int, float) and math.isfinite(table[end])
        file.require(number, (*key, end), "a finite number, or no such key")
    if not ends:
        expected, remedy = "low, high or both", "write what is predicted"
        raise file.error((*key, "low"), expected, "neither", remedy)
    if len(ends) == 2 and not table["low"] < table["high"]:
        got = f"low = {table['low']} and high = {table['high']}"
        raise file.error((*key, "low"), "low below high", got)


def _require_over(file: TomlFile, key: Key) -> None:
    """Require the settings of an effect over settings, and what else it needs."""
    table = file.value(key)
    over = table.get("over", [])
    names = isinstance(over, list) and all(isinstance(name, str) for name in over)
    file.require(names, (*key, "over"), "a list of settings")
    if bool(over) != (table["effect"] in OVER_SETTINGS):
        expected = f"settings for {' and '.join(OVER_SETTINGS)}, none for other effects"
        raise file.error((*key, "over"), expected, over or "none")
    if table["effect"] == SHARE and "against" not in table:
        raise file.error((*key, "against"), "the arm that is compared with", "none")
    if table["effect"] == SLOPE and (len(over) != 1 or "against" in table):
        expected = "one setting in over, and no other arm, for a slope"
        raise file.error((*key, "over"), expected, over)


def _require_margin(file: TomlFile, key: Key) -> None:
    """Require a margin > 0, with a prediction that one side is better."""
    table = file.value(key)
    if "margin" not in table:
        return
    number = type(table["margin"]) in (int, float) and 0 < table["margin"] < math.inf
    file.require(number, (*key, "margin"), "a number > 0")
    if "low" in table and "high" in table:
        expected = "no margin beside low and high, which are one"
        raise file.error((*key, "margin"), expected, table["margin"])


def _require_one(
    file: TomlFile, key: Key, arm: Arm, arms: Sequence[Arm], over: Sequence[str]
) -> None:
    """Raise unless exactly one of the arms, by dotted paths, has these settings.

    With ``over`` several arms have them, one for each value of these settings.
    """
    for path, value in arm.items():
        there = [settings[path] for settings in arms if path in settings]
        if not there:
            paths = {path for settings in arms for path in settings}
            raise file.unknown((*key, path), "setting", paths, name=path)
        if value not in there:
            values = ", ".join(dict.fromkeys(map(repr, there)))
            expected = f"a value that some run has ({values})"
            raise file.error((*key, path), expected, repr(value))
    chosen = [settings for settings in arms if matches(arm, settings)]
    for path in over:
        if any(path not in settings for settings in chosen):
            paths = {path for settings in arms for path in settings}
            raise file.unknown((*key[:-1], "over"), "setting", paths, name=path)
    cells = {tuple(repr(settings[path]) for path in over) for settings in chosen}
    count = len(chosen)
    if count != max(len(cells), 1) or (over and count < 2):
        expected = "settings that exactly one combination of vary has"
        if over:
            expected = "settings that several combinations have, which differ in over"
        remedy = "name the settings that tell it from the others"
        raise file.error(key, expected, f"{count} of them", remedy)


def _without(settings: Arm, path: str) -> Arm:
    return {name: value for name, value in settings.items() if name != path}


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return every setting by its dotted path."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        path = f"{above}{name}"
        flat |= (
            _flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
        )
    return flat
