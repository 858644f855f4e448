"""Primary comparisons: the predictions of an experiment, declared in its TOML file.

A ``[[primary]]`` names two arms, a metric, and an interval that is predicted to contain
the effect. The rule that judges it is in ``harness.judgement.verdicts``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from harness.declarations.toml_files import (
    Number,
    Positive,
    Table,
    Text,
    leaves,
    one_of,
    wrong,
)
from harness.records.record import digest
from lockstep.errors import unknown_name

LOG_RATIO, DIFFERENCE, SHARE, SLOPE = (
    "log ratio",
    "difference",
    "share of settings",
    "slope per doubling",
)
EVEN = 0.5
"""The share of settings in which an arm is ahead if the arms are equal."""
OVER_SETTINGS = (SHARE, SLOPE)
"""Effects that are computed from several values of the settings in ``over``."""

Arm = Annotated[
    dict[str, Any], Field(min_length=1), AfterValidator(lambda a: dict(leaves(a)))
]
"""Settings by dotted paths that distinguish an arm from all others."""


class Primary(Table):
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

    name: Text
    claim: Text
    metric: str
    arm: Arm
    effect: Annotated[str, one_of("effect", (LOG_RATIO, DIFFERENCE, SHARE, SLOPE))]
    because: Text
    against: Arm = Field(default_factory=dict)
    low: Number = -math.inf
    high: Number = math.inf
    over: tuple[str, ...] = ()
    margin: Positive = 0.0
    control: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _require_interval(self) -> Self:
        low, high = self.low, self.high
        if self.arm == self.against:
            raise wrong(
                "expected another arm than the one it is compared with.", "against"
            )
        if not low < high or math.inf == high == -low:
            got = (
                f"low = {low} and high = {high}" if high - low < math.inf else "neither"
            )
            expected = "low, high or both, low below high"
            raise wrong(
                f"expected {expected}, got {got}; write what is predicted.", "low"
            )
        if self.margin and high - low < math.inf:
            text = "expected no margin beside low and high, which are one."
            raise wrong(text, "margin")
        if bool(self.over) != (self.effect in OVER_SETTINGS):
            kinds = " and ".join(OVER_SETTINGS)
            text = f"expected settings for {kinds}, none for other effects."
            raise wrong(text, "over")
        if self.effect == SHARE and not self.against:
            raise wrong("expected the arm that is compared with, got none.", "against")
        if self.effect == SLOPE and (len(self.over) != 1 or self.against):
            text = "expected one setting in over, and no other arm, for a slope."
            raise wrong(text, "over")
        return self

    def require_arms(self, arms: Sequence[Mapping[str, Any]], *key: str | int) -> None:
        """Raise unless ``arms``, all of a scale, have the two that are compared.

        Args:
            arms: settings by dotted paths.
            key: of this comparison in the file.
        """
        for name, arm in (("arm", self.arm), ("against", self.against)):
            if arm:
                _require_one(arm, arms, self.over, (*key, name))


def prediction_of(primaries: Sequence[Primary]) -> str:
    """Return a digest of the predictions, or "" if there are none.

    It depends on everything that decides a verdict, including the order, but not on
    the wording.
    """
    if not primaries:
        return ""
    judged = [p.model_dump(exclude={"claim", "because"}) for p in primaries]
    for content in judged:
        ends = {end: str(content[end]) for end in ("low", "high")}
        content.update(ends)  # JSON has no infinity.
        for later in ("over", "margin", "control"):  # Older records do not know them.
            if not content[later]:
                del content[later]
    return digest(judged, 12)


def matches(arm: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    """Whether a configuration has every setting of an arm."""
    settings = dict(leaves(config))
    return all(path in settings and settings[path] == v for path, v in arm.items())


def _require_one(
    arm: Mapping[str, Any],
    arms: Sequence[Mapping[str, Any]],
    over: Sequence[str],
    key: tuple[str | int, ...],
) -> None:
    """Raise unless exactly one of the arms has these settings."""
    paths = {path for settings in arms for path in settings}
    for path, value in arm.items():
        there = [settings[path] for settings in arms if path in settings]
        if not there:
            raise wrong(str(unknown_name("setting", path, paths)), *key, path)
        if value not in there:
            values = ", ".join(dict.fromkeys(map(repr, there)))
            expected = f"a value that some run has ({values})"
            text = f"expected {expected}, got {value!r}; change it there."
            raise wrong(text, *key, path)
    chosen = [settings for settings in arms if matches(arm, settings)]
    for path in over:
        if any(path not in settings for settings in chosen):
            raise wrong(str(unknown_name("setting", path, paths)), *key[:-1], "over")
    cells = {tuple(repr(settings[path]) for path in over) for settings in chosen}
    count = len(chosen)
    if count != max(len(cells), 1) or (over and count < 2):
        expected = "settings that exactly one combination of vary has"
        if over:
            expected = "settings that several combinations have, which differ in over"
        remedy = "name the settings that tell it from the others"
        raise wrong(f"expected {expected}, got {count} of them; {remedy}.", *key)
