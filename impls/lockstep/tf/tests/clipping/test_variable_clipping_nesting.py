"""Row clipping inside and around other wrappers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.tf import MultitaskOptimizerWrapper, VariableClippingOptimizer
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.clipping.models import DENSE, TABLE, VALUES, ZERO, both, clipping
from lockstep.tf.tests.trajectory import (
    TOLERANCE,
    assert_close,
    assert_same_bits,
    replay_listed,
    rows,
)

Hosts = Callable[..., Any]
Wrap = Callable[[Any, list[Any]], Any]
NESTS: dict[str, Callable[[Any], Wrap]] = {
    "clip(clip)": lambda n: (
        lambda opt, keys: clipping(n, [[0], [1], [2]], 0.7)(
            clipping(n, [None, [], [0]], 0.9)(opt, keys), keys
        )
    ),
    "clip(multitask)": lambda n: (
        lambda opt, keys: clipping(n, [[0], [1], [2]], 0.5)(
            n.MultitaskOptimizerWrapper(opt), keys
        )
    ),
    "multitask(clip)": lambda n: (
        lambda opt, keys: n.MultitaskOptimizerWrapper(
            clipping(n, [[0], [1], [2]], 0.5)(opt, keys)
        )
    ),
}
DEEP_NESTS: dict[str, Callable[[Any], Wrap]] = {
    "clip(multitask(clip))": lambda n: (
        lambda opt, keys: clipping(n, [[0], None, None], 0.4)(
            NESTS["multitask(clip)"](n)(opt, keys), keys
        )
    ),
    "multitask(multitask(clip))": lambda n: (
        lambda opt, keys: n.MultitaskOptimizerWrapper(
            NESTS["multitask(clip)"](n)(opt, keys)
        )
    ),
    "multitask(clip(multitask(clip)))": lambda n: (
        lambda opt, keys: n.MultitaskOptimizerWrapper(
            DEEP_NESTS["clip(multitask(clip))"](n)(opt, keys)
        )
    ),
}
SOME_ZERO = [
    [ZERO[0], DENSE[0][1], ZERO[2]],
    DENSE[1],
    [DENSE[2][0], ZERO[1], None],
    ZERO,
    [DENSE[3][0], TABLE, ZERO[2]],
    [ZERO[0], rows([1, 1], [[1, 2], [-1, -2]], 4, 2), DENSE[3][2]],
]


# Without nests both rules are tested in test_variable_clipping.py.
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "rule", ["Momentum", pytest.param("Adam", marks=pytest.mark.soak)]
)
@pytest.mark.parametrize("nest", NESTS)
def test_nests_equal_the_reference(
    new_driver: Hosts, names: Any, nest: str, rule: str
) -> None:
    got, expected = both(new_driver, names, rule, NESTS[nest], VALUES, SOME_ZERO)
    assert_close(got, expected, within=TOLERANCE.get(rule, 0))


# The last one has the first one inside, and of the second one what differs.
@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "nest",
    [
        pytest.param("clip(multitask(clip))", marks=pytest.mark.soak),
        pytest.param("multitask(multitask(clip))", marks=pytest.mark.soak),
        "multitask(clip(multitask(clip)))",
    ],
)
def test_deep_nests_equal_the_reference(new_driver: Hosts, nest: str) -> None:
    got, expected = both(
        new_driver, lockstep_tf, "Momentum", DEEP_NESTS[nest], VALUES, SOME_ZERO
    )
    assert_close(got, expected, within=0)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("nest", "clipped"), [("multitask(clip)", False), ("clip(multitask)", True)]
)
def test_a_skipped_variable_is_clipped_from_outside_only(
    new_driver: Hosts, nest: str, clipped: bool
) -> None:
    steps = [[ZERO[0], DENSE[0][1], ZERO[2]]]
    wrap = NESTS[nest](lockstep_tf)
    state = replay_listed(new_driver(), "Momentum", wrap, VALUES, steps)[0]
    changed = state.variables[0].tobytes() != VALUES[0].tobytes()
    assert changed is clipped
    assert np.linalg.norm(state.variables[1], axis=1) == pytest.approx([0.5] * 4)


def test_strict_multitask_around_clipping_has_no_effect(new_driver: Hosts) -> None:
    names = lockstep_strict
    bare = clipping(names, [[0], [1], [2]], 0.5)
    wrap = NESTS["multitask(clip)"](names)
    assert_same_bits(
        replay_listed(new_driver(names), "Momentum", wrap, VALUES, SOME_ZERO),
        replay_listed(new_driver(names), "Momentum", bare, VALUES, SOME_ZERO),
    )


def test_a_report_tells_what_the_multitask_wrapper_inside_did() -> None:
    a, b = tf.Variable([3.0, 4.0], name="a"), tf.Variable(1.0, name="b")
    inner = MultitaskOptimizerWrapper(lockstep_tf.AdamOptimizer())
    opt = VariableClippingOptimizer(inner, {a.ref(): [0]}, 1.0)
    opt.apply_gradients([(tf.zeros([2]), a), (tf.ones([]), b)])
    assert opt.last_step.skipped == ("a",)
    assert opt.last_step.reason == "of 2 gradients 1 all zero; 1 of 1 rows clipped"
