"""A mistake is refused with the same class of error on every backend."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

from lockstep import errors, registry
from lockstep.tests.wrappers import FIRST, LAYERS, Parts, lacks

ONES = np.ones(2, np.float32)


class Kit(NamedTuple):
    """What a backend makes for a mistake."""

    ls: ModuleType
    variable: Callable[[], Any]  # Makes a variable of two ones, float32.
    tensor: Callable[..., Any]  # Makes a tensor of values, float32 unless given.
    first: Callable[[Any], list[Any]]  # What comes before an optimizer's arguments.
    loss: Callable[[Any], Callable[[], Any]]  # A variable -> a loss of it.
    device: str

    def base(self, variable: Any) -> Any:
        """Return an optimizer of the variable."""
        return self.ls.GradientDescentOptimizer(*self.first(variable), 0.1)

    def scaled(self, scale: Any, **options: Any) -> Any:
        """Return a loss-scale optimizer."""
        base = self.base(self.variable())
        return self.ls.MixedPrecisionLossScaleOptimizer(base, scale, **options)

    def rows(self, axes: Any, norm: float = 1.0) -> Any:
        """Return an optimizer that clips rows."""
        base = self.base(self.variable())
        return self.ls.VariableClippingOptimizer(base, axes, norm)

    def worker(self, *period: int, **wrong: Any) -> Any:
        """Return an ``AGNOptimizer``."""
        base = wrong.get("optimizer", self.base(self.variable()))
        getter = wrong.get("getter", self.ls.AGNCustomGetter(self.device))
        return self.ls.AGNOptimizer(base, 1, getter, *period)

    def clipped(self, name: str, *limits: Any) -> Any:
        """Call a function that clips pairs."""
        pairs = [(self.tensor(1, 1), self.variable())]
        return getattr(self.ls, name)(pairs, *limits)


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


def differentiated(**wrong: Any) -> Callable[[Kit, Any, Any], Any]:
    """Call ``compute_gradients`` with a wrong argument."""

    def call(kit: Kit, optimizer: Any, variable: Any) -> Any:
        right = {"loss": kit.loss(variable), "var_list": [variable]}
        return optimizer.compute_gradients(**{**right, **wrong})

    return call


def applied(
    pairs: Callable[[Kit, Any], Any], **options: Any
) -> Callable[[Kit, Any, Any], Any]:
    """Call ``apply_gradients`` with wrong arguments."""
    return lambda kit, optimizer, w: optimizer.apply_gradients(pairs(kit, w), **options)


ALONE = [layer for layer in FIRST.values() if layer != "agn"]
"""Wrappers that need no worker."""

OF_WRAPPERS: dict[str, tuple[Callable[[Kit, Any, Any], Any], type[Exception]]] = {
    "a number in var_list": (differentiated(var_list=[3]), errors.VarListError),
    "None in var_list": (differentiated(var_list=[None]), errors.VarListError),
    "a number as var_list": (differentiated(var_list=3), errors.VarListError),
    "a text as var_list": (differentiated(var_list="w"), errors.VarListError),
    "a text as the loss": (differentiated(loss="loss"), errors.LossNotCallableError),
    "a number as pairs": (applied(lambda k, w: 3), errors.MalformedPairsError),
    "no pairs": (applied(lambda k, w: []), errors.NoGradientsError),
    "absent gradients": (applied(lambda k, w: [(None, w)]), errors.NoGradientsError),
    "three in a pair": (
        applied(lambda k, w: [(k.tensor(1, 1), w, 1)]),
        errors.MalformedPairsError,
    ),
    "a pair the other way": (
        applied(lambda k, w: [(w, k.tensor(1, 1))]),
        errors.MalformedPairsError,
    ),
    "another shape": (
        applied(lambda k, w: [(k.tensor(1, 1, 1), w)]),
        errors.ShapeError,
    ),
    "another dtype": (
        applied(lambda k, w: [(k.tensor(1, 1, dtype="float64"), w)]),
        errors.DtypeError,
    ),
    "a number as global_step": (
        applied(lambda k, w: [(k.tensor(1, 1), w)], global_step=3),
        errors.DtypeError,
    ),
}

MISTAKES: dict[str, tuple[Callable[[Kit], Any], type[Exception]]] = {
    "no optimizer for multitask": (
        lambda k: k.ls.MultitaskOptimizerWrapper(3),
        errors.NotAnOptimizerError,
    ),
    "a norm below 0": (
        lambda k: k.clipped("clip_gradients_by_global_norm", -1.0),
        errors.OutOfRangeError,
    ),
    "no optimizer for a loss scale": (
        lambda k: k.ls.MixedPrecisionLossScaleOptimizer(3, 1.0),
        errors.NotScalableError,
    ),
    "no loss scale": (lambda k: k.scaled(None), errors.MissingLossScaleError),
    "an unknown loss scale": (lambda k: k.scaled("x"), errors.UnknownNameError),
    "a loss scale of 0": (lambda k: k.scaled(0.0), errors.OutOfRangeError),
    "a bool as a loss scale": (lambda k: k.scaled(True), errors.OutOfRangeError),
    "a loss scale of NaN": (lambda k: k.scaled(math.nan), errors.OutOfRangeError),
    "an unknown at_floor": (
        lambda k: k.scaled(1.0, at_floor="x"),
        errors.OutOfRangeError,
    ),
    "a norm of 0": (lambda k: k.scaled(1.0, clip_norm=0.0), errors.OutOfRangeError),
    "an unknown scaler": (
        lambda k: k.ls.AutomaticLossScaler("Backof"),
        errors.UnknownNameError,
    ),
    "an argument of no scaler": (
        lambda k: k.ls.AutomaticLossScaler("Backoff", {"foo": 1}),
        errors.UnknownNameError,
    ),
    "no optimizer for masters": (
        lambda k: k.ls.MixedPrecisionOptimizerWrapper(3),
        errors.NotScalableError,
    ),
    "no optimizer for row clipping": (
        lambda k: k.ls.VariableClippingOptimizer(3, {}, 1.0),
        errors.NotAnOptimizerError,
    ),
    "axes of no variables": (lambda k: k.rows(3), errors.AxesError),
    "a row norm of 0": (lambda k: k.rows({}, 0.0), errors.OutOfRangeError),
    "a rate below 0": (
        lambda k: k.ls.NovoGrad(*k.first(k.variable()), -1.0),
        errors.OutOfRangeError,
    ),
    "a norm of NaN": (
        lambda k: k.clipped("clip_gradients_by_norm", math.nan),
        errors.OutOfRangeError,
    ),
    "a text to clip": (
        lambda k: k.ls.clip_by_global_norm("x", 1.0),
        errors.NotASequenceError,
    ),
    "an argument of LARC": (
        lambda k: k.clipped("post_process_gradients", [], 0.1, None, {"foo": 1}),
        errors.UnknownNameError,
    ),
    "an unknown summary": (
        lambda k: k.clipped("post_process_gradients", ["gradient"], 0.1, None, None),
        errors.UnknownNameError,
    ),
    "no boundaries": (
        lambda k: k.ls.lr_policies.piecewise_constant(4, 0.1, [], []),
        errors.NoBoundariesError,
    ),
    "boundaries that do not rise": (
        lambda k: k.ls.lr_policies.piecewise_constant(4, 0.1, [5, 3], [0.5, 0.1]),
        errors.OutOfRangeError,
    ),
    "no steps of decay": (
        lambda k: k.ls.lr_policies.poly_decay(4, 0.1, 0),
        errors.OutOfRangeError,
    ),
    "no optimizer for a worker": (
        lambda k: k.worker(optimizer=3),
        errors.NotAnOptimizerError,
    ),
    "no getter": (lambda k: k.worker(getter=3), errors.GetterError),
    "a period of 0": (lambda k: k.worker(0), errors.OutOfRangeError),
}

UNCHECKED = (
    *("var_list", "at_floor", "as pairs", "a pair", "as the loss"),
    *("for row clipping", "for a worker", "no getter"),
)
"""What the reference does not use, or leaves to Python's own errors."""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_class(kit: Kit, mistake: str) -> None:
    call, error = MISTAKES[mistake]
    if not is_unchecked(kit, mistake):
        with pytest.raises(error):
            call(kit)


@pytest.mark.parametrize("mistake", OF_WRAPPERS)
@pytest.mark.parametrize("wrapper", ALONE)
def test_a_mistake_with_a_wrapper_is_one_class(
    kit: Kit, wrapper: str, mistake: str
) -> None:
    call, error = OF_WRAPPERS[mistake]
    if not is_unchecked(kit, mistake):
        if lacks(kit.ls, f"{wrapper} Momentum"):
            pytest.skip(f"{kit.ls.__name__} has no {wrapper}")
        variable = kit.variable()
        optimizer = LAYERS[wrapper](Parts(kit.ls, kit.base(variable), {}))
        with pytest.raises(error):
            call(kit, optimizer, variable)


def is_unchecked(kit: Kit, mistake: str) -> bool:
    """Return whether a backend is the reference, which does not check this."""
    is_reference = kit.ls is registry.load("reference")
    return is_reference and any(word in mistake for word in UNCHECKED)
