"""Workers of AGN, and the bits that they hold."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from lockstep.tf import AdamOptimizer, AGNCustomGetter, AGNOptimizer

__all__ = ["bits", "single", "team_of"]

v1 = tf.compat.v1


def team_of(count: int, **options: Any) -> tuple[list[Any], list[AGNOptimizer]]:
    """Make eager workers with one variable each, all with one center."""
    variables, team = [], []
    for _ in range(count):
        variable = tf.Variable([1.0, -2.0], name="w")
        center = team[0].custom_getter.center if team else None
        getter = AGNCustomGetter("/cpu:0", center=center)
        getter([variable])
        team.append(AGNOptimizer(AdamOptimizer(0.1), count, getter, 2, **options))
        variables.append(variable)
    return variables, team


def single(**options: Any) -> tuple[tf.Variable, AGNOptimizer]:
    (variable,), (worker,) = team_of(1, **options)
    return variable, worker


def bits(variables: Any) -> list[bytes]:
    return [variable.numpy().tobytes() for variable in variables]
