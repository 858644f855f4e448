"""Rows that are clipped, and their steps, beside the reference's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from harness.parity import drivers
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.trajectory import State, draw, replay_listed, rows

__all__ = ["DENSE", "TABLE", "VALUES", "ZERO", "both", "clipping"]

v1 = tf.compat.v1
Hosts = Callable[..., Any]
Wrap = Callable[[Any, list[Any]], Any]
VALUES, *DENSE = draw(5, [(3,), (4, 2), (2, 3, 2)], steps=4)
VALUES = [value * 2 for value in VALUES]
ZERO = [np.zeros_like(value) for value in VALUES]
TABLE = rows([2, 0], [[1, -2], [3, 0.5]], 4, 2)


def clipping(names: Any, axes: list[Any], max_norm: float = 1.0) -> Wrap:
    """Clip every variable whose axes are not None."""

    def wrap(opt: Any, keys: list[Any]) -> Any:
        pairs = zip(keys, axes, strict=True)
        listed = {key: dims for key, dims in pairs if dims is not None}
        return names.VariableClippingOptimizer(opt, listed, max_norm)

    return wrap


def both(
    new_driver: Hosts, names: Any, rule: str, wrap: Callable[[Any], Wrap], *run: Any
) -> tuple[list[State], list[State]]:
    """Replay on TensorFlow and on the reference, under the same semantics."""
    oracle = drivers.load("reference", strict=names is lockstep_strict)
    expected = replay_listed(oracle, rule, wrap(oracle.names), *run)
    return replay_listed(new_driver(names), rule, wrap(names), *run), expected
