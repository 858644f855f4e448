"""The settings of one run, checked when an experiment declares them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.tasks.settings import require, require_counts, require_label
from lockstep.errors import unknown_name
from lockstep.messages.clipping.larc import larc_policy

__all__ = ["IMAGES", "Settings"]

IMAGES = 1437
"""The number of training images of ``harness.tasks.digits``; the rest is held out."""

KEYS = ("label", "clip_gradients", "larc_params")

FEWEST = 2
"""The fewest rates of a sweep, because a single rate has no range."""


@dataclass(frozen=True)
class Settings:
    """The settings of one run.

    Attributes:
        method: ``label``, and the arguments ``clip_gradients`` and ``larc_params`` of
            ``post_process_gradients``; without both it is not called.
        batch: images per step.
        epochs: the passes over all images; so larger batches mean fewer steps.
        depth: the number of hidden tanh layers.
        width: the units of each layer.
        momentum: the momentum of SGD.
        rates: learning rates in increasing order; a new net is trained at each.
        margin: the distance from the best accuracy that an arm may have; a run reports
            the range of rates within it.
    """

    method: Mapping[str, Any]
    batch: int
    epochs: int
    depth: int
    width: int
    momentum: float
    rates: Sequence[float]
    margin: float

    def __post_init__(self) -> None:
        require_counts(self, "batch", "epochs", "depth", "width")
        expected = "a batch or more of images in all epochs"
        require(self.steps > 0, "epochs", expected, f"{self.epochs} of {IMAGES}")
        for name in ("momentum", "margin"):
            _require_share(name, getattr(self, name))
        self._check_rates()
        self._check_method()

    def _check_rates(self) -> None:
        several = isinstance(self.rates, Sequence) and len(self.rates) >= FEWEST
        numbers = several and all(map(_is_positive, self.rates))
        increasing = numbers and list(self.rates) == sorted(set(self.rates))
        expected = f"{FEWEST} or more numbers > 0 in increasing order"
        require(increasing, "rates", expected, self.rates)

    def _check_method(self) -> None:
        table = isinstance(self.method, Mapping)
        require(table, "method", "a table with a label", self.method)
        for key in self.method:
            if key not in KEYS:
                raise unknown_name("key of method", key, KEYS)
        require_label("method.label", self.method.get("label"))
        limit = self.clip_gradients
        fits = limit is None or _is_positive(limit)
        require(fits, "method.clip_gradients", "a finite number > 0", limit)
        if self.larc_params is not None:
            larc_policy(self.larc_params, strict=False)

    @property
    def label(self) -> str:
        """The name of the method."""
        return str(self.method["label"])

    @property
    def clip_gradients(self) -> float | None:
        """The largest global norm of the gradients; None if they are not clipped."""
        limit: float | None = self.method.get("clip_gradients")
        return limit

    @property
    def larc_params(self) -> Mapping[str, Any] | None:
        """The parameters of LARC; None without it."""
        parameters: Mapping[str, Any] | None = self.method.get("larc_params")
        return parameters

    @property
    def steps(self) -> int:
        """Optimizer steps at each rate: the full batches of all epochs."""
        return self.epochs * IMAGES // self.batch


def _require_share(name: str, value: Any) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    require(number and 0 <= value < 1, name, "a number from 0 to below 1", value)


def _is_positive(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0 < value < math.inf
