"""A served center of two small weights, and pushes to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from lockstep.ray.served_center import (
    Membership,
    Sender,
    ServedCenter,
    Start,
    SummedWeights,
    layout,
)

Changes = dict[str, Any]


def start(**changed: Any) -> Start:
    """Return what a worker with two weights hands over."""
    weights = {"w": np.zeros(2, np.float32), "b": np.zeros((), np.float32)}
    own = Membership("1.0", "reference", "delta", layout(weights), [])
    return Start(SummedWeights(weights), own._replace(**changed))


def served(folder: Path, every: int = 1, birth: str | None = None) -> ServedCenter:
    center = ServedCenter("toy", str(folder), every, "refuse")
    center.begin(start(), birth)
    return center


def after_crash(center: ServedCenter) -> ServedCenter:
    """Return what a worker of a center finds after the process was started again."""
    return served(center.path.parent, center.every, center.birth)


def ones(number: float = 1.0) -> Changes:
    return {"w": np.full(2, number, np.float32), "b": np.float32(number).reshape(())}


def sender(center: ServedCenter, sequence: int, worker: str = "a") -> Sender:
    return Sender(worker, sequence, 0, center.birth)


def push(center: ServedCenter, sequence: int, worker: str = "a", since: int = 0) -> Any:
    return center.push(Sender(worker, sequence, since, center.birth), ones(), None)


def w(center: ServedCenter) -> list[float]:
    found: list[float] = center.present()["w"].tolist()
    return found
