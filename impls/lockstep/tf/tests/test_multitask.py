"""Laws of the wrapper, in every mode that can share a process."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from harness.parity import drivers
from lockstep import reference
from lockstep import tf as lockstep_tf
from lockstep.reference import strict as reference_strict
from lockstep.tf import MultitaskOptimizerWrapper
from lockstep.tf import strict as lockstep_strict
from lockstep.tf.tests.trajectory import (
    RULES,
    TOLERANCE,
    assert_close,
    assert_same_bits,
    draw,
    replay,
    rows,
)
from lockstep.tf.wrapper import HOOKS

Hosts = Callable[..., Any]
REFERENCES = {lockstep_tf: reference, lockstep_strict: reference_strict}

# One rule of each kind: no state, a slot, shared powers, a hook of its own.
WRAPPED = ["GradientDescent", "Momentum", "Adam", "Ftrl"]

VALUES, *DENSE = draw(7, [(3,), (4, 2), ()], steps=6)
ZERO = [np.zeros_like(value) for value in VALUES]
TABLE = rows([2, 0, 2], [[1, -2], [3, 0.5], [-0.25, 4]], 4, 2)
CANCELLING = rows([1, 1], [[1, 2], [-1, -2]], 4, 2)
NO_ROWS = rows([], [], 4, 2)

PATTERNS = {
    "dense": [
        ZERO,
        DENSE[0],
        [DENSE[1][0], ZERO[1], DENSE[1][2]],
        [ZERO[0], DENSE[2][1], ZERO[2]],
        ZERO,
        ZERO,
        [ZERO[0], DENSE[3][1], DENSE[3][2]],
        DENSE[4],
    ],
    "absent": [
        [None, DENSE[0][1], ZERO[2]],
        [DENSE[1][0], None, None],
        [ZERO[0], DENSE[2][1], None],
    ],
    "sparse": [
        [DENSE[0][0], TABLE, DENSE[0][2]],
        [DENSE[1][0], CANCELLING, ZERO[2]],
        [ZERO[0], NO_ROWS, DENSE[2][2]],
        [DENSE[3][0], TABLE, DENSE[3][2]],
    ],
}


@pytest.mark.sample(5)
@pytest.mark.parametrize("rule", WRAPPED)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_every_step_equals_the_reference(
    new_driver: Hosts, names: Any, pattern: str, rule: str
) -> None:
    oracle = drivers.load("reference", strict=names is lockstep_strict)
    expected = replay(
        oracle, rule, oracle.names.MultitaskOptimizerWrapper, VALUES, PATTERNS[pattern]
    )
    wrap = names.MultitaskOptimizerWrapper
    got = replay(new_driver(names), rule, wrap, VALUES, PATTERNS[pattern])
    assert_close(got, expected, within=TOLERANCE.get(rule, 0))


@pytest.mark.sample(3)
@pytest.mark.parametrize("rule", ["Momentum", "Adam"])
def test_a_zero_gradient_is_an_absent_one_to_the_bit(
    new_driver: Hosts, rule: str
) -> None:
    steps = PATTERNS["dense"][1:4]
    absent = [[g if g.any() else None for g in gradients] for gradients in steps]
    bare = replay(new_driver(), rule, lambda opt: opt, VALUES, absent)
    assert_same_bits(
        replay(new_driver(), rule, MultitaskOptimizerWrapper, VALUES, steps), bare
    )


def test_the_wrapped_optimizer_stays_untouched(new_driver: Hosts) -> None:
    driver = new_driver()
    variable = driver.variable("w", VALUES[0])
    base = driver.optimizer("Momentum", RULES["Momentum"], [variable])
    wrapper = MultitaskOptimizerWrapper(base)
    through = driver.compile(lambda g: wrapper.apply_gradients([(g[0], variable)]))
    directly = driver.compile(lambda g: base.apply_gradients([(g[0], variable)]))
    through([DENSE[0][0]])
    through([ZERO[0]])
    before = driver.read(variable)
    assert not set(HOOKS) & set(vars(base))
    directly([ZERO[0]])
    assert (driver.read(variable) != before).all(), "momentum moves it, as without us"


def test_strict_changes_the_wrapped_optimizer_for_good(new_driver: Hosts) -> None:
    driver = new_driver(lockstep_strict)
    variable = driver.variable("w", VALUES[0])
    base = driver.optimizer("Momentum", RULES["Momentum"], [variable])
    driver.names.MultitaskOptimizerWrapper(base)
    directly = driver.compile(lambda g: base.apply_gradients([(g[0], variable)]))
    directly([DENSE[0][0]])
    before = driver.read(variable)
    directly([ZERO[0]])
    assert driver.read(variable).tobytes() == before.tobytes()


def test_strict_sums_the_rows_of_gradient_descent_one_by_one(new_driver: Hosts) -> None:
    """Its sparse gradients never met the original's test, so rows that cancel round."""
    gradient = rows([1, 1], [[1e3, 0.3], [-1e3, -0.3]], 4, 2)
    bare = replay(
        new_driver(), "GradientDescent", lambda opt: opt, [VALUES[1]], [[gradient]]
    )
    wrap = lockstep_strict.MultitaskOptimizerWrapper
    strict = replay(new_driver(), "GradientDescent", wrap, [VALUES[1]], [[gradient]])
    assert_same_bits(strict, bare)
    assert strict[0].variables[0].tobytes() != VALUES[1].tobytes()


def nest_ours(optimizer: Any) -> Any:
    return MultitaskOptimizerWrapper(MultitaskOptimizerWrapper(optimizer))


def nest_loss_scale(optimizer: Any) -> Any:
    scaler = tf.compat.v1.mixed_precision.MixedPrecisionLossScaleOptimizer
    return MultitaskOptimizerWrapper(scaler(optimizer, 8.0))


@pytest.mark.sample(1)
@pytest.mark.parametrize("wrap", [nest_ours, nest_loss_scale])
def test_it_works_around_other_wrappers(
    new_driver: Hosts, wrap: Callable[[Any], Any]
) -> None:
    steps = PATTERNS["dense"]
    single = replay(new_driver(), "Adam", MultitaskOptimizerWrapper, VALUES, steps)
    assert_same_bits(replay(new_driver(), "Adam", wrap, VALUES, steps), single)


def test_a_compiled_step_with_zeros_survives_garbage_collection() -> None:
    variable = tf.Variable([1.0, 2.0])
    wrapper = MultitaskOptimizerWrapper(lockstep_tf.MomentumOptimizer(0.5, 0.9))
    other = tf.Variable(1.0)
    step = tf.function(
        lambda g, h: wrapper.apply_gradients([(g, variable), (h, other)]) and None,
        autograph=False,
    )
    step(tf.ones([2]), tf.ones([]))
    gc.collect()
    step(tf.zeros([2]), tf.ones([]))
    assert variable.numpy().tolist() == [0.5, 1.5]
    assert other.numpy() == pytest.approx(1 - 0.5 - 0.95)


def test_a_jit_compiled_step_leaves_zeros_alone() -> None:
    variable, other = tf.Variable([1.0, 2.0]), tf.Variable(1.0)
    wrapper = MultitaskOptimizerWrapper(lockstep_tf.MomentumOptimizer(0.5, 0.9))
    wrapper.create_slots([variable, other])

    @tf.function(jit_compile=True, autograph=False)
    def step(g: tf.Tensor, h: tf.Tensor) -> None:
        wrapper.apply_gradients([(g, variable), (h, other)])

    step(tf.ones([2]), tf.ones([]))
    step(tf.zeros([2]), tf.ones([]))
    assert variable.numpy().tolist() == [0.5, 1.5]
    assert other.numpy() == pytest.approx(1 - 0.5 - 0.95)
