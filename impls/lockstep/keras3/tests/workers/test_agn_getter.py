"""What the getter takes, and which variables join a center."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep.errors import GetterError
from lockstep.keras3 import AGNCustomGetter, AGNOptimizer
from lockstep.tests.registering import assert_second_waits


def weight(name: str = "w", value: Any = (1.0, 2.0)) -> keras.Variable:
    return keras.Variable(np.float32(value), name=name)


def model(*names: str | None) -> keras.Sequential:
    """Return a model whose layers have these names, or all those that Keras gives."""
    layers = [keras.layers.Dense(2, name=name) for name in names]
    name = "model" if names[0] else None
    return keras.Sequential([keras.Input((2,)), *layers], name=name)


def filled(*variables: Any) -> AGNCustomGetter:
    """Return a getter that filled a center, with w if there is nothing else."""
    getter = AGNCustomGetter("/cpu:0")
    getter(list(variables) or [weight()])
    return getter


def beside(first: AGNCustomGetter) -> AGNCustomGetter:
    return AGNCustomGetter("/cpu:0", center=first.center)


def test_a_worker_waits_until_another_has_registered_all_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = AGNCustomGetter("/cpu:0")
    second = AGNCustomGetter("/cpu:0", center=first.center)
    assert_second_waits(first, second, lambda: [weight("v"), weight("w")], monkeypatch)


def test_models_built_alike_but_named_by_keras_are_refused() -> None:
    first = AGNCustomGetter("/cpu:0")
    first(model(None, None))
    known, second = list(first.center.shared), beside(first)
    with pytest.raises(ValueError):
        second(model(None, None))
    assert list(first.center.shared) == known
    assert not second._global_map


def test_pairs_with_names_let_them_join() -> None:
    models, center, workers = [model(None, None) for _ in range(2)], None, []
    for trained in models:
        getter = AGNCustomGetter("/cpu:0", center)
        variables = trained.trainable_variables
        pairs = [(f"v{k}", variable) for k, variable in enumerate(variables)]
        assert getter(pairs) == variables
        center = getter.center
        workers.append(AGNOptimizer(keras.optimizers.SGD(0.5), 2, getter, 1))
    for number, worker in enumerate(workers):
        worker.get_init_op(number)
    assert list(center.shared) == ["v0", "v1", "v2", "v3"]
    own, others = [[v.numpy() for v in m.trainable_variables] for m in models]
    for one, other in zip(own, others, strict=True):
        np.testing.assert_array_equal(one, other)


def test_models_and_layers_named_alike_join_by_themselves() -> None:
    first = AGNCustomGetter("/cpu:0")
    first(model("hidden", "head"))
    beside(first)(model("hidden", "head"))
    assert len(first.center.shared) == 4


def test_a_name_that_was_given_is_not_numbered() -> None:
    getter = filled(("w", weight()))
    with pytest.raises(ValueError):
        getter([("w", weight())])
    assert getter([weight()]) and list(getter.center.shared) == ["w", "w#1"]


def test_nothing_joins_if_one_of_them_has_another_shape() -> None:
    second = beside(filled(weight("a"), weight("b")))
    with pytest.raises(ValueError):
        second([weight("a"), weight("b", [1.0])])
    assert not second._global_map


def test_the_worker_that_filled_the_center_adds_and_others_follow() -> None:
    first, later = filled(), weight("later")
    second = beside(first)
    second([weight()])
    with pytest.raises(ValueError):
        second([later])
    first([weight("later")])
    second([later])
    assert second._global_map[later.value.ref()] is first.center.shared["later"]


WRONG: dict[str, Callable[[], Any]] = {
    "a getter for a center": lambda: AGNCustomGetter("/cpu:0", center=filled()),
    "a word for a center": lambda: AGNCustomGetter("/cpu:0", center="c"),
    "nothing": lambda: AGNCustomGetter("/cpu:0")(None),
    "a word": lambda: AGNCustomGetter("/cpu:0")("w"),
    "a dict": lambda: AGNCustomGetter("/cpu:0")({"w": weight()}),
    "a variable": lambda: AGNCustomGetter("/cpu:0")(weight()),
    "a tensor": lambda: AGNCustomGetter("/cpu:0")(tf.ones([2])),
    "no variables": lambda: AGNCustomGetter("/cpu:0")([None]),
    "a model without variables": lambda: AGNCustomGetter("/cpu:0")(
        keras.Sequential([keras.layers.Dense(2)])
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_getter_cannot_take_is_refused(name: str) -> None:
    with pytest.raises(GetterError):
        WRONG[name]()
