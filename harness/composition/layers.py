"""Short names of wrappers and base optimizers, and stacks of them on any backend.

A stack is written from the outside in: ``"multitask dynamic Adam"`` is a multitask
wrapper around a loss-scale optimizer around Adam.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from harness.parity.drivers.protocol import Driver, Worker
from lockstep.interface import Array

__all__ = [
    "BASES",
    "LAYERS",
    "MAX_NORM",
    "ROUND",
    "Layer",
    "Model",
    "build",
    "has_masters",
    "model_of",
    "skips",
]

MAX_NORM = 0.75
"""Norm above which a row is clipped."""

ROUND = 3
"""Number of local steps between two pushes of a worker."""


class Model(NamedTuple):
    """The variables that are trained.

    Attributes:
        variables: the first is a matrix, whose rows may be clipped.
        worker: owner of the variables, if they belong to a worker.
    """

    variables: Sequence[Any]
    worker: Worker | None = None


Wrap = Callable[[Driver, Any, Model], Any]


class Layer(NamedTuple):
    """A wrapper with its arguments.

    Attributes:
        wrapper: its public name.
        wrap: backend, optimizer, model -> the wrapper.
    """

    wrapper: str
    wrap: Wrap


def _multitask(driver: Driver, opt: Any, model: Model) -> Any:
    return driver.names.MultitaskOptimizerWrapper(opt)


def _rows(driver: Driver, opt: Any, model: Model) -> Any:
    """Clip rows of the first variable, a matrix."""
    axes = {driver.key(model.variables[0]): [1]}
    return driver.names.VariableClippingOptimizer(opt, axes, MAX_NORM)


def _rounds(**options: Any) -> Layer:
    def wrap(driver: Driver, opt: Any, model: Model) -> Any:
        assert model.worker is not None
        getter = model.worker.getter
        return driver.names.AGNOptimizer(opt, 1, getter, ROUND, **options)

    return Layer("AGNOptimizer", wrap)


def _scaled(loss_scale: Callable[[Any], Any], **options: Any) -> Layer:
    def wrap(driver: Driver, opt: Any, model: Model) -> Any:
        names = driver.names
        scale = loss_scale(names)
        return names.MixedPrecisionLossScaleOptimizer(opt, scale, **options)

    return Layer("MixedPrecisionLossScaleOptimizer", wrap)


def _masters(loss_scale: Callable[[Any], Any], **options: Any) -> Layer:
    def wrap(driver: Driver, opt: Any, model: Model) -> Any:
        names = driver.names
        return names.MixedPrecisionOptimizerWrapper(opt, loss_scale(names), **options)

    return Layer("MixedPrecisionOptimizerWrapper", wrap)


def _dynamic(names: Any) -> Any:
    """Return a scale that changes often: it grows at every second finite step."""
    return names.DynamicLossScale(4.0, 2)


def _patient(names: Any) -> Any:
    """Return a scale with two more counters: it ignores the first of two overflows."""
    return names.DynamicLossScale(4.0, 2, hysteresis=2)


def _backoff(names: Any) -> Any:
    params = {"scale_max": 16.0, "scale_min": 1.0, "step_window": 2}
    return names.AutomaticLossScaler("Backoff", params)


def _logmax(names: Any) -> Any:
    return names.AutomaticLossScaler("LogMax", {"scale_max": 64.0})


LAYERS: Mapping[str, Layer] = {
    "multitask": Layer("MultitaskOptimizerWrapper", _multitask),
    "rows": Layer("VariableClippingOptimizer", _rows),
    "agn": _rounds(),
    "agn-delta": _rounds(commit="delta"),
    "fixed": _scaled(lambda names: 8.0),
    "dynamic": _scaled(_dynamic),
    "patient": _scaled(_patient),
    "clipped": _scaled(_dynamic, clip_norm=1.0),
    "masters": _masters(lambda names: None),
    "masters-fixed": _masters(lambda names: 8.0),
    "masters-dynamic": _masters(_dynamic),
    "masters-backoff": _masters(_backoff),
    "masters-logmax": _masters(_logmax, clip_norm=1.0),
}

BASES: Mapping[str, Mapping[str, Any]] = {
    "GradientDescent": {"learning_rate": 0.25},
    "Momentum": {"learning_rate": 0.25, "momentum": 0.5},
    "Adam": {"learning_rate": 0.125},
    "AdamW": {"weight_decay": 0.0625, "learning_rate": 0.125},
    "Adagrad": {"learning_rate": 0.25},
    "RMSProp": {"learning_rate": 0.0625, "momentum": 0.5, "centered": True},
    "Ftrl": {"learning_rate": 0.25, "l1_regularization_strength": 0.0078125},
    "NovoGrad": {"learning_rate": 0.125, "beta1": 0.5, "weight_decay": 0.0625},
}


def model_of(stack: str, driver: Driver, named: Mapping[str, Array]) -> Model:
    """Create variables with these names and values, as ``stack`` needs them."""
    wrappers = [LAYERS[layer].wrapper for layer in stack.split()[:-1]]
    if "AGNOptimizer" not in wrappers:
        return Model([driver.variable(name, value) for name, value in named.items()])
    (worker,) = driver.workers(named, 1)
    return Model(worker.variables, worker)


def build(stack: str, driver: Driver, model: Model) -> Any:
    """Return the optimizer described by ``stack``, for this model."""
    *layers, base = stack.split()
    optimizer = driver.optimizer(base, BASES[base], model.variables)
    for layer in reversed(layers):
        optimizer = LAYERS[layer].wrap(driver, optimizer, model)
    return optimizer


def has_masters(stack: str) -> bool:
    """Return whether half-precision variables are trained through masters."""
    return "masters" in stack


def skips(stack: str) -> bool:
    """Return whether steps with non-finite gradients are skipped."""
    wrappers = {LAYERS[layer].wrapper for layer in stack.split()[:-1]}
    return any(wrapper.startswith("MixedPrecision") for wrapper in wrappers)
