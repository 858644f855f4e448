"""NovoGrad as a v1 optimizer; its numbers are checked by parity."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as lockstep
from lockstep.tf import NovoGrad, strict

v1 = tf.compat.v1

SLOTS = ("momentum", "second_moment")
ways = pytest.mark.parametrize("traced", [False, True], ids=["eager", "function"])


def stepper(optimizer: Any, *variables: tf.Variable, traced: bool = False) -> Any:
    """Return a function of gradients that takes a step."""

    def step(*gradients: Any) -> None:
        optimizer.apply_gradients(list(zip(gradients, variables, strict=True)))

    return tf.function(step, autograph=False) if traced else step


def moments(optimizer: Any, variable: tf.Variable) -> list[np.ndarray]:
    return [optimizer.get_slot(variable, name).numpy() for name in SLOTS]


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("learning_rate", -1.0),
        ("beta1", 1.0),
        ("beta2", -0.5),
        ("epsilon", float("inf")),
        ("weight_decay", -0.1),
        ("grad_averaging", 1),
        ("beta1", None),
    ],
)
def test_arguments_are_checked_unless_strict(argument: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"NovoGrad: {argument}"):
        NovoGrad(**{argument: value})
    if value is not None:
        strict.NovoGrad(**{argument: value})


def test_a_session_saves_and_restores_under_the_names_of_slots(tmp_path: Path) -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable([1.0, 2.0], name="w", use_resource=True)
        optimizer = NovoGrad(0.5)
        train = optimizer.apply_gradients([(tf.constant([3.0, 4.0]), w)])
        names = sorted(v.op.name for v in v1.global_variables())
        assert names == ["w", "w/NovoGrad", "w/NovoGrad_1"]
        session.run(v1.global_variables_initializer())
        session.run(train)
        saver = v1.train.Saver()
        path = saver.save(session, str(tmp_path / "saved"))
        session.run(v1.global_variables_initializer())
        saver.restore(session, path)
        second = optimizer.get_slot(w, "second_moment")
        found = session.run([w, optimizer.get_slot(w, "momentum"), second])
    assert found[0] == pytest.approx([0.7, 1.6])
    assert found[1] == pytest.approx([0.6, 0.8]) and found[2] == 25


@ways
def test_the_second_moment_of_small_gradients_is_an_average(traced: bool) -> None:
    variable = tf.Variable([1.0, 1.0])
    optimizer = NovoGrad(beta2=0.75)
    step = stepper(optimizer, variable, traced=traced)
    step(tf.constant([0.3, 0.4]))
    step(tf.constant([0.06, 0.08]))
    # The squares of the norms are 0.25 and 0.01.
    _, moment = moments(optimizer, variable)
    assert moment == pytest.approx(0.75 * 0.25 + 0.25 * 0.01)


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16], ids=str)
def test_novograd_computes_in_float32_and_rounds_once(dtype: tf.DType) -> None:
    arguments = {"beta1": 0.999, "beta2": 0.999, "weight_decay": 0.01}
    start, gradient = [0.5, -1.0], [2.0, 3.0]
    half = tf.Variable(tf.constant(start, dtype))
    wide = tf.Variable(start)
    opt, other = (NovoGrad(0.001, **arguments) for _ in range(2))
    for _ in range(3):
        momentum = other.get_slot(wide, "momentum")
        opt.apply_gradients([(tf.constant(gradient, dtype), half)])
        other.apply_gradients([(tf.constant(gradient), wide)])
        # Rounded where the other optimizer would go on in float32.
        wide.assign(tf.cast(tf.cast(wide, dtype), tf.float32))
        momentum = other.get_slot(wide, "momentum")
        momentum.assign(tf.cast(tf.cast(momentum, dtype), tf.float32))
        assert (tf.cast(half, tf.float32).numpy() == wide.numpy()).all()
    slot = opt.get_slot(half, "momentum")
    assert (tf.cast(slot, tf.float32).numpy() == momentum.numpy()).all()


# -- rates ---------------------------------------------------------------------------


@ways
@pytest.mark.parametrize("kind", ["variable", "callable", "policy"])
def test_the_rate_may_change_from_step_to_step(kind: str, traced: bool) -> None:
    count, w = tf.Variable(0, dtype=tf.int64), tf.Variable([8.0])
    rate = tf.Variable(1.0)

    def policy() -> tf.Tensor:
        policies = lockstep.lr_policies
        return policies.piecewise_constant(count, 1.0, [0, 1], [0.5, 0.25])

    given = {"variable": rate, "callable": lambda: rate, "policy": policy}[kind]
    step = stepper(NovoGrad(given, beta1=0.0), w, traced=traced)
    for value in (1.0, 0.5, 0.25):
        rate.assign(value)
        step(tf.constant([2.0]))
        count.assign_add(1)
    assert w.numpy().tolist() == [6.25]


# -- strict --------------------------------------------------------------------------


def test_strict_makes_the_variables_of_the_original_which_stay_0() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        pairs = [
            (tf.constant([3.0, 4.0]), v1.Variable([1.0, 2.0], name=name))
            for name in "ab"
        ]
        variables = [variable for _, variable in pairs]
        optimizer = strict.NovoGrad()
        train = optimizer.apply_gradients(pairs)
        names = sorted(v.op.name for v in v1.global_variables())
        moments = ["nvgrad2_ema0", "nvgrad2_ema1"]
        assert names == ["a", "a/NovoGrad", "b", "b/NovoGrad", *moments]
        assert optimizer.get_slot_names() == ["momentum"]
        session.run(v1.global_variables_initializer())
        session.run(train)
        seen = [optimizer.get_slot(v, "second_moment") for v in variables]
        assert [v.op.name for v in seen] == moments
        assert session.run(seen) == [0.0, 0.0]


def test_a_third_call_in_a_graph_averages_with_the_second() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable([0.0], name="w", use_resource=True)
        optimizer = strict.NovoGrad(beta1=0.0, beta2=0.5, epsilon=0.0)
        for gradient in (4.0, 8.0, 2.0**0.5):
            train = optimizer.apply_gradients([(tf.constant([gradient]), w)])
        session.run(v1.global_variables_initializer())
        session.run(train)
        # v = (((16 + 64) / 2) + 2) / 2 = 21.
        assert session.run(w) == pytest.approx([-((2 / 21) ** 0.5)])


@ways
def test_strict_never_remembers_where_calls_run(traced: bool) -> None:
    w = tf.Variable([0.0])
    optimizer = strict.NovoGrad(beta1=0.0)
    step = stepper(optimizer, w, traced=traced)
    for gradient in (100.0, 1.0):
        step(tf.constant([gradient]))
    assert w.numpy().tolist() == [-2.0]
    assert optimizer.get_slot(w, "second_moment").numpy() == 0.0


def test_strict_refuses_before_anything_changes() -> None:
    w, half = tf.Variable([1.0]), tf.Variable([1.0], dtype=tf.float16)
    one, pairs = tf.ones([1]), [(tf.ones([1]), w)]
    optimizer = strict.NovoGrad()
    refused: list[tuple[Any, type[Exception]]] = [
        (tuple(pairs), TypeError),
        ([*pairs, (None, tf.Variable([1.0], name="x"))], ValueError),
        ([*pairs, (tf.cast(one, tf.float16), half)], TypeError),
    ]
    for given, error in refused:
        with pytest.raises(error):
            optimizer.apply_gradients(given)
    assert w.numpy() == 1.0 and optimizer.variables() == []
