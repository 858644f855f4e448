"""Read ``[tune]``: its valid content, and errors that name the line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.declarations.toml_files import Key, TomlFile
from harness.declarations.tune import Tune, leaves
from harness.records.metrics import metrics_of

__all__ = ["read_tune", "require_place"]

LEAST = 5
"""Smallest number of values: fewer show neither the optimum nor its width."""

KEYS = ("seeds", "metric", "values")


def read_tune(file: TomlFile, task: str) -> Tune | None:
    """Read and check ``[tune]``. Return None if the file has none.

    Raises:
        HarnessError: it is invalid. The sentence names file, line and key.
    """
    if "tune" not in file.content:
        return None
    file.require_keys(("tune",), KEYS, required=KEYS)
    content = file.content["tune"]
    seeds, metric = content["seeds"], content["metric"]
    file.require(
        type(seeds) is int and seeds > 0, ("tune", "seeds"), "a number of seeds > 0"
    )
    metrics = metrics_of(task)
    if metric not in metrics:
        raise file.unknown(("tune", "metric"), f"metric of {task}", metrics)
    path, values = _swept(file)
    return Tune(seeds, metric, path, values)


def require_place(
    file: TomlFile, tune: Tune, arms: Sequence[Mapping[str, Any]]
) -> None:
    """Raise unless every arm has a place for the tuned setting, and no value there.

    Raises:
        HarnessError: an arm already has the setting, or lacks the table around it.
    """
    *above, last = tune.path.split(".")
    for arm in arms:
        table: Any = arm
        for name in above:
            table = table.get(name) if isinstance(table, Mapping) else None
        inside = isinstance(table, Mapping)
        if not inside or last in table:
            expected = "a setting of every arm that stands nowhere else in the file"
            got = "a second place for it" if inside else "one that an arm has not"
            key = ("tune", "values", *_written(file, tune.path))
            raise file.error(key, expected, got)


def _swept(file: TomlFile) -> tuple[str, tuple[float, ...]]:
    """Return the tuned setting and its values."""
    key: Key = ("tune", "values")
    file.require(isinstance(file.value(key), Mapping), key, "a table of one setting")
    # With and without quotation marks: "optimizer.learning_rate" = [...]
    settings = dict(leaves(file.value(key)))
    file.require(len(settings) == 1, key, "one setting with its values")
    ((path, values),) = settings.items()
    numbers = isinstance(values, list) and all(
        type(value) in (int, float) and 0 < value < math.inf for value in values
    )
    increasing = numbers and values == sorted(set(values))
    if not increasing or len(values) < LEAST:
        expected = f"at least {LEAST} numbers > 0 in increasing order"
        raise file.error((*key, *_written(file, path)), expected, values)
    return path, tuple(float(value) for value in values)


def _written(file: TomlFile, path: str) -> Key:
    """Return the key of a setting as written in the file: with or without quotes."""
    return (path,) if path in file.content["tune"]["values"] else (*path.split("."),)
