"""A mistake is refused with the same class of error on every backend."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lockstep import registry
from lockstep.tests.kit import Kit
from lockstep.tests.same_mistakes import MISTAKES

ONES = np.ones(2, np.float32)


def of_reference() -> Kit:
    ls = registry.load("reference")
    return Kit(
        ls,
        lambda: ls.Variable("w", ONES),
        lambda *values, dtype="float32": np.array(values, dtype),
        lambda w: [],
        lambda w: lambda: [ONES],
        "/cpu:0",
    )


def of_tensorflow(backend: str, variable: Callable[[], Any]) -> Kit:
    tf = importlib.import_module("tensorflow")
    return Kit(
        registry.load(backend),
        variable,
        lambda *values, dtype="float32": tf.constant(values, dtype),
        lambda w: [],
        lambda w: lambda: tf.reduce_sum(w * 1.0),
        "/cpu:0",
    )


def of_tf() -> Kit:
    tf = importlib.import_module("tensorflow")
    return of_tensorflow("tf", lambda: tf.Variable(ONES, name="w"))


def of_keras3() -> Kit:
    keras = importlib.import_module("keras")
    return of_tensorflow("keras3", lambda: keras.Variable(ONES, name="w"))


def of_pytorch() -> Kit:
    torch = importlib.import_module("torch")
    return Kit(
        registry.load("pytorch"),
        lambda: torch.nn.Parameter(torch.ones(2)),
        lambda *values, dtype="float32": torch.tensor(values).to(getattr(torch, dtype)),
        lambda w: [[("w", w)]],
        lambda w: lambda: (w * 1.0).sum(),
        "cpu",
    )


UNCHECKED = (
    "var_list",
    "an unknown end",  # It has no ``at_floor``.
)
"""What the reference, which does not use it, does not check."""

KITS = {
    "reference": of_reference,
    "tf": of_tf,
    "keras3": of_keras3,
    "pytorch": of_pytorch,
}


@functools.cache
def kit_of(backend: str) -> Kit:
    return KITS[backend]()


@pytest.fixture(params=registry.BACKENDS)
def kit(request: pytest.FixtureRequest) -> Kit:
    name = str(request.param)
    if not registry.installed(name):
        pytest.skip(f"{registry.find(name).framework} is not installed")
    return kit_of(name)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_class(kit: Kit, mistake: str) -> None:
    is_reference = kit.ls is registry.load("reference")
    if is_reference and any(word in mistake for word in UNCHECKED):
        return
    call, error, _ = MISTAKES[mistake]
    with pytest.raises(error):
        call(kit)
