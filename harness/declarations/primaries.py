"""Primary comparisons: the predictions of an experiment, declared in its TOML file.

A ``[[primary]]`` names two arms, a metric, and an interval that is predicted to contain
the effect. The rule that judges it is in ``harness.judgement.verdicts``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from harness.declarations.toml_files import (
    Number,
    Positive,
    Table,
    Text,
    flat,
    leaves,
    one_of,
    require_known,
    wrong,
)
from harness.records.record import digest

LOG_RATIO, DIFFERENCE, SHARE, SLOPE = (
    "log ratio",
    "difference",
    "share of settings",
    "slope per doubling",
)
EVEN = 0.5
"""The share of settings in which an arm is ahead if the arms are equal."""

Arm = Annotated[dict[str, Any], Field(min_length=1), BeforeValidator(flat)]
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
    def _require_prediction(self) -> Self:
        if self.arm == self.against:
            expected = "another arm than the one it is compared with"
            raise wrong(f"expected {expected}; change it there.", "against")
        if not self.low < self.high or -self.low == self.high == math.inf:
            expected = "low, high or both, low below high"
            raise wrong(f"expected {expected}; write what is predicted.", "low")
        if self.effect == SHARE:
            right = bool(self.over and self.against)
            expected = "settings that are combined, and an arm to compare with"
        elif self.effect == SLOPE:
            right = len(self.over) == 1 and not self.against
            expected = "one setting, and no arm to compare with"
        else:
            right = not self.over
            expected = "no settings"
        if not right:
            got = f"{list(self.over)}"
            text = f"expected {expected} for the effect {self.effect!r}, got {got}."
            raise wrong(text, "over")
        return self

    def require_arms(self, arms: Sequence[Mapping[str, Any]], *key: str | int) -> None:
        """Raise unless ``arms``, all of a scale, have the two that are compared.

        Args:
            arms: settings by dotted paths.
            key: of this comparison in the file.
        """
        known = dict.fromkeys(path for settings in arms for path in settings)
        for path in self.over:
            require_known("setting", path, known, *key, "over")
        for name, arm in (("arm", self.arm), ("against", self.against)):
            for path, value in arm.items():
                require_known("setting", path, known, *key, name, path)
                values = [settings[path] for settings in arms if path in settings]
                if value not in values:
                    some = ", ".join(dict.fromkeys(map(repr, values)))
                    expected = f"a value that some run has ({some})"
                    text = f"expected {expected}, got {value!r}; change it there."
                    raise wrong(text, *key, name, path)
            if arm:
                self._require_one(arm, arms, *key, name)

    def _require_one(
        self, arm: Mapping[str, Any], arms: Sequence[Mapping[str, Any]], *key: str | int
    ) -> None:
        """Raise unless one of the arms has these settings, or one for each ``over``."""
        chosen = [settings for settings in arms if matches(arm, settings)]
        combined = {repr([each.get(path) for path in self.over]) for each in chosen}
        if len(chosen) == len(combined) and (len(chosen) > 1) == bool(self.over):
            return
        expected = "settings that exactly one combination of vary has"
        if self.over:
            expected = "settings that several combinations have, which differ in over"
        remedy = "name the settings that tell it from the others"
        raise wrong(f"expected {expected}, got {len(chosen)} of them; {remedy}.", *key)


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
