"""What settings of every task are checked for, where an experiment declares them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lockstep.spec.errors import OutOfRangeError, sentence, unknown_name
from lockstep.spec.optimizers import OPTIMIZERS

__all__ = ["bound", "require", "require_counts", "require_spread", "spread"]


def require(claim: bool, subject: str, expected: str, got: object) -> None:
    """Raise OutOfRangeError, in one sentence, unless ``claim`` holds."""
    if not claim:
        remedy = "change it in the experiment's file"
        raise OutOfRangeError(sentence(subject, expected, str(got), remedy))


def require_counts(settings: object, *names: str) -> None:
    """Raise OutOfRangeError unless these settings are whole numbers > 0."""
    for name in names:
        value = getattr(settings, name)
        counted = isinstance(value, int) and value > 0
        require(counted, name, "a whole number > 0", value)


def require_spread(checkpoints: int, steps: int) -> None:
    """Raise OutOfRangeError unless checkpoints can lie at equal distances."""
    got = f"{checkpoints} for {steps} steps"
    even = steps % checkpoints == 0
    require(even, "checkpoints", "a number that divides steps", got)


def spread(checkpoints: int, steps: int) -> list[int]:
    """Return the steps of checkpoints at equal distances, 0 among them."""
    interval = steps // checkpoints
    return [interval * k for k in range(checkpoints + 1)]


def bound(optimizer: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the defaults of an optimizer's arguments and check them."""
    arguments = dict(optimizer)
    name = arguments.pop("name", None)
    if name not in OPTIMIZERS:
        raise unknown_name("optimizer", name, OPTIMIZERS)
    return {"name": name, **OPTIMIZERS[name].bind((), arguments)}
