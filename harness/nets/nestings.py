"""The result of each pair of nested wrappers: its note if it is valid, or a refusal."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.composition.stacks import (
    build,
    has_masters,
    model_of,
    notes_of,
    refusal_of,
)
from harness.composition.wrappers import NESTINGS
from harness.nets.sentences import normalized
from harness.nets.snapshots import Snapshot
from harness.parity import drivers
from harness.parity.drivers.protocol import Driver
from lockstep.messages.errors import LockstepError

__all__ = ["BACKENDS", "PAIRS", "declared", "take", "verdicts"]

BACKENDS = {
    "reference": ("reference", "numpy"),
    "pytorch": ("pytorch", "eager"),
    "tf eager": ("tf", "eager"),
    "tf graph": ("tf", "graph"),
    "keras3": ("keras3", "eager"),
}
PAIRS = tuple(" ".join((*pair, "Momentum")) for pair in NESTINGS)


def take() -> Snapshot:
    """Return the declared table, and the results of each backend in both modes."""
    return {"table": declared(), **{name: verdicts(name) for name in BACKENDS}}


def declared() -> dict[str, dict[str, str]]:
    """Return backend -> pair -> its notes if it is valid, or part of the refusal."""
    return {
        name: {pair: _declared(pair, *at) for pair in PAIRS}
        for name, at in BACKENDS.items()
    }


def verdicts(name: str) -> dict[str, dict[str, str]]:
    """Return ``default`` and ``strict`` -> pair -> result of two steps."""
    return {
        mode: {
            pair: _verdict(pair, *BACKENDS[name], mode == "strict") for pair in PAIRS
        }
        for mode in ("default", "strict")
    }


def _declared(pair: str, backend: str, mode: str) -> str:
    refusal = refusal_of(pair, backend, mode)
    if refusal is not None:
        return f"refused: {refusal}"
    return ", ".join(("right", *sorted(notes_of(pair))))


def _verdict(pair: str, backend: str, mode: str, strict: bool) -> str:
    """Build a pair and run two steps. Return the error, if one is raised."""
    driver = drivers.load(backend, mode, strict)
    try:
        _train(pair, driver)
        return "takes steps"
    except LockstepError as error:
        return f"refused: {type(error).__name__}: {normalized(str(error))}"
    except Exception as error:  # Strict mode fails here, as the originals did.
        return f"fails: {type(error).__name__}"
    finally:
        driver.close()


def _train(pair: str, driver: Driver) -> None:
    dtype = "float16" if has_masters(pair) else "float32"
    values = {"table": np.ones((3, 2), dtype), "head": np.ones(2, dtype)}
    model = model_of(pair, driver, values)
    optimizer = build(pair, driver, model)
    if hasattr(optimizer, "build"):  # Keras gets its variables there.
        optimizer.build(model.variables)

    def take(gradients: list[Any]) -> None:
        loss = driver.linear_loss(model.variables, gradients)
        pairs = optimizer.compute_gradients(loss, var_list=model.variables)
        optimizer.apply_gradients(pairs)

    step = driver.compile(take)
    for scale in (1.0, 0.0):
        step([value * np.asarray(scale, dtype) for value in values.values()])
