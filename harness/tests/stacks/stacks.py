"""Stacks of wrappers on any backend: what they are made of, and how they nest.

A stack is written from the outside in: ``"multitask dynamic Adam"`` is a multitask
wrapper around a loss-scale optimizer around Adam. It is right if each step has the bits
of the pipeline in :mod:`harness.tests.stacks.pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from harness.parity.drivers.protocol import Driver, Worker
from lockstep.interface import Array
from lockstep.pipeline import base_of
from lockstep.registry import BACKENDS

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
"""Base optimizer -> its arguments."""

# -- layers: (driver, optimizer, model) -> a wrapper around the optimizer --------------

Layer = Callable[[Driver, Any, Model], Any]


def dynamic(names: Any) -> Any:
    """Return a scale that changes often: it grows at every second finite step."""
    return names.DynamicLossScale(4.0, 2)


def backoff(names: Any) -> Any:
    params = {"scale_max": 16.0, "scale_min": 1.0, "step_window": 2}
    return names.AutomaticLossScaler("Backoff", params)


def multitask(driver: Driver, opt: Any, model: Model) -> Any:
    return driver.names.MultitaskOptimizerWrapper(opt)


def rows(driver: Driver, opt: Any, model: Model) -> Any:
    axes = {driver.key(model.variables[0]): [1]}
    return driver.names.VariableClippingOptimizer(opt, axes, MAX_NORM)


def scaled(scale: Callable[[Any], Any], **options: Any) -> Layer:
    return lambda driver, opt, model: driver.names.MixedPrecisionLossScaleOptimizer(
        opt, scale(driver.names), **options
    )


def masters(scale: Callable[[Any], Any], **options: Any) -> Layer:
    return lambda driver, opt, model: driver.names.MixedPrecisionOptimizerWrapper(
        opt, scale(driver.names), **options
    )


def agn(**options: Any) -> Layer:
    def wrap(driver: Driver, opt: Any, model: Model) -> Any:
        assert model.worker is not None
        getter = model.worker.getter
        return driver.names.AGNOptimizer(opt, 1, getter, ROUND, **options)

    return wrap


LAYERS: Mapping[str, Layer] = {
    "multitask": multitask,
    "rows": rows,
    "fixed": scaled(lambda names: 8.0),
    "dynamic": scaled(dynamic),
    # With two more counters: it ignores the first of two overflows.
    "patient": scaled(lambda names: names.DynamicLossScale(4.0, 2, hysteresis=2)),
    "clipped": scaled(dynamic, clip_norm=1.0),
    "masters": masters(lambda names: None),
    "masters-fixed": masters(lambda names: 8.0),
    "masters-dynamic": masters(dynamic),
    "masters-backoff": masters(backoff),
    "masters-logmax": masters(
        lambda names: names.AutomaticLossScaler("LogMax", {"scale_max": 64.0}),
        clip_norm=1.0,
    ),
    "agn": agn(),
    "agn-delta": agn(commit="delta"),
}

STACKS = (
    *BASES,
    "multitask Adam",
    "rows Adam",
    "multitask rows AdamW",
    "fixed Momentum",
    "dynamic Adam",
    "patient Momentum",
    "rows dynamic Adagrad",
    "dynamic rows NovoGrad",
    "clipped multitask rows Adam",
    "rows multitask patient Momentum",
    "masters-dynamic Adam",
    "masters-backoff Adam",
    "masters-logmax Momentum",
    "masters-dynamic multitask Adam",
    "masters-backoff rows Ftrl",
    "masters-dynamic multitask NovoGrad",
    "masters-logmax multitask rows RMSProp",
    "masters-dynamic rows multitask Adagrad",
    "agn Momentum",
    "agn Adam",
    "agn NovoGrad",
    "agn-delta Adam",
    "agn rows Momentum",
    "dynamic agn Adam",
    "agn multitask rows NovoGrad",
    "clipped agn rows RMSProp",
)
"""The stacks whose state must survive a checkpoint, on every backend."""

# -- nestings: the table of docs/composition.md ----------------------------------------


class Nesting(NamedTuple):
    """The result of one wrapper around another.

    Attributes:
        note: how the result differs from the listed order of the stages, or empty.
        refused: backends that raise when the pair is built, or a mode of a backend that
            raises in its first step.
    """

    note: str = ""
    refused: frozenset[str] = frozenset()


RIGHT = Nesting()
# A step with only zero gradients is finite for the loss scale.
IDLE_COUNTS = Nesting("idle counts")
# Rows are clipped even if the step is skipped, or even if the gradient is all zero.
SKIP_CLIPS, ZERO_CLIPS = Nesting("skip clips"), Nesting("zero clips")
# A variable with an all-zero gradient is pushed and pulled.
ZEROS_GO_ROUND = Nesting("zeros go round")


REFUSED = Nesting(refused=frozenset(BACKENDS))
NESTINGS: Mapping[tuple[str, str], Nesting] = {
    ("multitask", "multitask"): RIGHT,
    ("multitask", "rows"): RIGHT,
    ("multitask", "dynamic"): RIGHT,
    ("multitask", "masters-dynamic"): RIGHT,
    ("multitask", "agn"): Nesting(refused=frozenset({"tf graph"})),
    ("rows", "multitask"): ZERO_CLIPS,
    ("rows", "rows"): RIGHT,
    ("rows", "dynamic"): SKIP_CLIPS,
    ("rows", "masters-dynamic"): REFUSED,
    ("rows", "agn"): REFUSED,
    ("dynamic", "multitask"): IDLE_COUNTS,
    ("dynamic", "rows"): RIGHT,
    ("dynamic", "dynamic"): REFUSED,
    ("dynamic", "masters-dynamic"): REFUSED,
    ("dynamic", "agn"): RIGHT,
    ("masters-dynamic", "multitask"): IDLE_COUNTS,
    ("masters-dynamic", "rows"): RIGHT,
    ("masters-dynamic", "dynamic"): REFUSED,
    ("masters-dynamic", "masters-dynamic"): REFUSED,
    ("masters-dynamic", "agn"): REFUSED,
    ("agn", "multitask"): ZEROS_GO_ROUND,
    ("agn", "rows"): RIGHT,
    ("agn", "dynamic"): REFUSED,
    ("agn", "masters-dynamic"): REFUSED,
    ("agn", "agn"): REFUSED,
}
"""(outer, inner) -> result. A fixed scale behaves like a dynamic one."""


def pairs_of(stack: str) -> list[tuple[str, str]]:
    """Return every (outer, inner) pair of a stack's wrappers, adjacent or not."""
    layers = stack.split()[:-1]
    return [(o, i) for k, o in enumerate(layers) for i in layers[k + 1 :]]


def is_refused(stack: str, backend: str, mode: str = "") -> bool:
    """Return whether this stack raises."""
    where = {backend, f"{backend} {mode}"}
    return any(NESTINGS[pair].refused & where for pair in pairs_of(stack))


def notes_of(stack: str) -> frozenset[str]:
    """Return how a stack differs from the listed order of the stages."""
    return frozenset(NESTINGS[p].note for p in pairs_of(stack)) - {""}


# -- building --------------------------------------------------------------------------


def model_of(stack: str, driver: Driver, named: Mapping[str, Array]) -> Model:
    """Create variables with these names and values, as ``stack`` needs them."""
    if "agn" not in stack:
        return Model([driver.variable(name, value) for name, value in named.items()])
    (worker,) = driver.workers(named, 1)
    return Model(worker.variables, worker)


def build(stack: str, driver: Driver, model: Model) -> Any:
    """Return the optimizer described by ``stack``, for this model."""
    *layers, base = stack.split()
    optimizer = driver.optimizer(base, BASES[base], model.variables)
    for layer in reversed(layers):
        optimizer = LAYERS[layer](driver, optimizer, model)
    return optimizer


def has_masters(stack: str) -> bool:
    """Return whether half-precision variables are trained through masters."""
    return "masters" in stack


def skips(stack: str) -> bool:
    """Return whether steps with non-finite gradients are skipped."""
    scaling = ("fixed", "dynamic", "patient", "clipped", "masters")
    return any(layer.startswith(scaling) for layer in stack.split()[:-1])


def slot_names(driver: Driver, optimizer: Any) -> list[str]:
    """Return the sorted names of the slots of an optimizer."""
    if driver.backend == "reference":
        base = base_of(optimizer)
        return sorted(slot.name for slot in base.spec.active_slots(base.arguments))
    return sorted(optimizer.get_slot_names())
