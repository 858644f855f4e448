"""Paths of clipped variables in files: Keras loads variables under other paths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lockstep import keras3
from lockstep.errors import UnknownNameError, UnsupportedError

# Keras turns a variable into an array as NumPy 2 does not like it.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)

X = np.eye(4, 3, dtype=np.float32)
Y = X[:, :1]


def layers() -> list[Any]:
    return [keras.layers.Dense(3, name="first"), keras.layers.Dense(1, name="second")]


def functional() -> keras.Model:
    inputs = keras.Input([3])
    first, second = layers()
    return keras.Model(inputs, second(first(inputs)), name="net")


def sequential_with_input() -> keras.Model:
    return keras.Sequential([keras.layers.Input([3]), *layers()], name="net")


def sequential_without_input() -> keras.Model:
    return keras.Sequential(layers(), name="net")


@keras.saving.register_keras_serializable(package="lockstep.tests")
class Subclassed(keras.Model):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.first, self.second = layers()

    def call(self, inputs: Any) -> Any:
        return self.second(self.first(inputs))


def twins() -> keras.Model:
    """Return a model of two others, whose layers have the same names."""
    inputs = values = keras.Input([3])
    for name in ("left", "right"):
        part = [keras.layers.Input([3]), keras.layers.Dense(3, name="first")]
        values = keras.Sequential(part, name=name)(values)
    return keras.Model(inputs, keras.layers.Dense(1, name="head")(values), name="net")


KINDS: dict[str, tuple[Callable[[], keras.Model], list[str]]] = {
    "functional": (functional, ["first/kernel"]),
    "sequential with input": (sequential_with_input, ["net/first/kernel"]),
    "sequential without": (sequential_without_input, ["net/first/kernel"]),
    "subclassed": (lambda: Subclassed(name="net"), ["net/first/kernel"]),
    "the left twin": (twins, ["left/first/kernel"]),
    "the right twin": (twins, ["right/first/kernel"]),
    "both twins": (twins, ["right/first/kernel", "left/first/kernel"]),
}


def kernels_of(model: keras.Model) -> list[keras.Variable]:
    return [v for v in model.trainable_variables if v.name == "kernel"]


def is_clipped(kernel: keras.Variable) -> bool:
    return bool((np.linalg.norm(kernel.numpy(), axis=1) < 1.01).all())


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", KINDS)
def test_models_of_every_kind_are_loaded_and_clipped_as_before(
    kind: str, tmp_path: Path
) -> None:
    make, listed = KINDS[kind]
    model = make()
    model(X)
    sgd = keras.optimizers.SGD(2.0**-10)
    axes = {path: [1] for path in listed}
    model.compile(keras3.VariableClippingOptimizer(sgd, axes, 1.0), "mse")
    expected = [v.path in listed for v in kernels_of(model)]
    model.fit(X, Y, verbose=0)
    for generation in "ab":
        model.save(tmp_path / f"{generation}.keras")
        model = keras.models.load_model(tmp_path / f"{generation}.keras")
        for kernel in kernels_of(model):
            kernel.assign(kernel + 3)
        variables = model.trainable_variables
        model.optimizer.apply([tf.zeros(v.shape) for v in variables], variables)
        assert list(map(is_clipped, kernels_of(model))) == expected


def optimizer(listed: list[str]) -> Any:
    sgd = keras.optimizers.SGD()
    axes = {path: [0] for path in listed}
    return keras3.VariableClippingOptimizer(sgd, axes, 1.0)


def variable(path: str) -> keras.Variable:
    *scopes, name = path.split("/")
    made = keras.Variable([4.0], name=name)
    made._path = "/".join([*scopes, name])
    return made


@pytest.mark.parametrize(
    ("path", "known"),
    [
        ("net/layer/kernel", ["layer/kernel", "kernel"]),
        ("layer/kernel", ["net/layer/kernel", "other/layer/kernel"]),
        ("kernel", ["a/kernel", "b/kernel"]),
    ],
)
def test_an_ambiguous_ending_is_an_error(path: str, known: list[str]) -> None:
    with pytest.raises(UnsupportedError):
        optimizer([path]).build([variable(name) for name in known])


def test_an_exact_path_goes_before_an_ending() -> None:
    both = [variable("net/layer/kernel"), variable("layer/kernel")]
    opt = optimizer(["layer/kernel"])
    opt.build(both)
    opt.apply([tf.zeros([1])] * 2, both)
    assert [v.numpy().tolist() for v in both] == [[4.0], [1.0]]


def test_only_whole_components_are_an_ending() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'sublayer/kernel'"):
        optimizer(["layer/kernel"]).build([variable("sublayer/kernel")])


def test_two_paths_of_one_variable_are_an_error() -> None:
    with pytest.raises(UnsupportedError, match="'layer/kernel' twice"):
        optimizer(["net/layer/kernel", "kernel"]).build([variable("layer/kernel")])


def test_places_stay_in_the_configuration_of_what_is_not_built() -> None:
    opt = optimizer(["left/kernel"])
    opt.build([variable("right/kernel"), variable("left/kernel")])
    config = opt.get_config()
    assert config["positions"] == {"left/kernel": 1}
    again = type(opt).from_config(config)
    assert again.get_config() == config
    loaded = [variable("kernel"), variable("kernel")]
    again.apply([tf.zeros([1])] * 2, loaded)
    assert [v.numpy().tolist() for v in loaded] == [[4.0], [1.0]]
