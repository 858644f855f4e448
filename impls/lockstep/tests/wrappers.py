"""The list of wrappers that all tests read: how each is made, and what holds for it.

A wrapper is in `WRAPPERS` by the name of its class, and tests skip it on backends that
do not export that name. A layer is a way to make it. The first one of each wrapper
stands for it: in stacks, in pairs, in triples and where mistakes are tried.

A stack is written from the outside in: ``"multitask dynamic Adam"`` is a multitask
wrapper around a loss-scale optimizer around Adam. It is right if each step has the bits
of :class:`Pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import product
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from lockstep import reference
from lockstep.interface import Array
from lockstep.reference import Variable
from lockstep.reference.optimizers import RuleOptimizer
from lockstep.reference.variable_clipping import clip_rows
from lockstep.registry import BACKENDS

MAX_NORM = 0.75
"""Norm above which a row is clipped."""
ROUND = 3
"""Number of local steps between two pushes of a worker."""
PERIOD = 2
"""Number of finite steps after which the dynamic scale grows."""


class Parts(NamedTuple):
    """What a wrapper is made of.

    Attributes:
        ls: the module of the backend.
        optimizer: what it wraps.
        axes: key of a matrix -> the axis of its rows' norms. May be empty.
        getter: a worker's ``AGNCustomGetter``, if the variables belong to a worker.
    """

    ls: ModuleType
    optimizer: Any
    axes: Mapping[Any, Sequence[int]]
    getter: Any = None


Layer = Callable[[Parts], Any]


def dynamic(ls: ModuleType) -> Any:
    """Return a scale that changes often: it grows at every second finite step."""
    return ls.DynamicLossScale(4.0, PERIOD)


def backoff(ls: ModuleType) -> Any:
    params = {"scale_max": 16.0, "scale_min": 1.0, "step_window": 2}
    return ls.AutomaticLossScaler("Backoff", params)


def logmax(ls: ModuleType) -> Any:
    return ls.AutomaticLossScaler("LogMax", {"scale_max": 64.0})


def scaled(scale: Callable[[ModuleType], Any], **options: Any) -> Layer:
    return lambda parts: parts.ls.MixedPrecisionLossScaleOptimizer(
        parts.optimizer, scale(parts.ls), **options
    )


def masters(scale: Callable[[ModuleType], Any], **options: Any) -> Layer:
    return lambda parts: parts.ls.MixedPrecisionOptimizerWrapper(
        parts.optimizer, scale(parts.ls), **options
    )


def agn(**options: Any) -> Layer:
    return lambda parts: parts.ls.AGNOptimizer(
        parts.optimizer, 1, parts.getter, ROUND, **options
    )


WRAPPERS: Mapping[str, Mapping[str, Layer]] = {
    "MultitaskOptimizerWrapper": {
        "multitask": lambda p: p.ls.MultitaskOptimizerWrapper(p.optimizer)
    },
    "VariableClippingOptimizer": {
        "rows": lambda p: p.ls.VariableClippingOptimizer(p.optimizer, p.axes, MAX_NORM)
    },
    "MixedPrecisionLossScaleOptimizer": {
        "dynamic": scaled(dynamic),
        "fixed": scaled(lambda ls: 8.0),
        # With two more counters: it ignores the first of two overflows.
        "patient": scaled(lambda ls: ls.DynamicLossScale(4.0, 2, hysteresis=2)),
        "clipped": scaled(dynamic, clip_norm=1.0),
    },
    "MixedPrecisionOptimizerWrapper": {
        "masters-dynamic": masters(dynamic),
        "masters": masters(lambda ls: None),
        "masters-fixed": masters(lambda ls: 8.0),
        "masters-backoff": masters(backoff),
        "masters-logmax": masters(logmax, clip_norm=1.0),
    },
    "AGNOptimizer": {"agn": agn(), "agn-delta": agn(commit="delta")},
}
"""Class of a wrapper -> name of a layer -> how it is made."""

LAYERS = {name: make for layers in WRAPPERS.values() for name, make in layers.items()}
CLASSES = {layer: wrapper for wrapper, layers in WRAPPERS.items() for layer in layers}
FIRST = {wrapper: next(iter(layers)) for wrapper, layers in WRAPPERS.items()}
"""Class of a wrapper -> the layer that stands for it."""

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

STACKS = (
    *BASES,
    *(f"{layer} Adam" for layer in FIRST.values()),
    "multitask rows AdamW",
    "fixed Momentum",
    "patient Momentum",
    "rows dynamic Adagrad",
    "dynamic rows NovoGrad",
    "clipped multitask rows Adam",
    "rows multitask patient Momentum",
    "masters-backoff Adam",
    "masters-logmax Momentum",
    "masters-dynamic multitask Adam",
    "masters-backoff rows Ftrl",
    "masters-dynamic multitask NovoGrad",
    "masters-logmax multitask rows RMSProp",
    "masters-dynamic rows multitask Adagrad",
    "agn Momentum",
    "agn NovoGrad",
    "agn-delta Adam",
    "agn rows Momentum",
    "dynamic agn Adam",
    "agn multitask rows NovoGrad",
    "clipped agn rows RMSProp",
)
"""The stacks whose state must survive a checkpoint, on every backend."""


def alone(ls: ModuleType) -> dict[str, Layer]:
    """Return the first layer of each wrapper of a backend that needs no worker."""
    layers = {n: LAYERS[n] for wrapper, n in FIRST.items() if hasattr(ls, wrapper)}
    return {name: make for name, make in layers.items() if name != "agn"}


def lacks(ls: ModuleType, stack: str) -> bool:
    """Return whether a backend does not export every wrapper of a stack."""
    return not all(hasattr(ls, CLASSES[layer]) for layer in stack.split()[:-1])


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
    **dict.fromkeys(product(FIRST.values(), FIRST.values()), RIGHT),
    ("multitask", "agn"): Nesting(refused=frozenset({"tf graph"})),
    ("rows", "multitask"): ZERO_CLIPS,
    ("rows", "dynamic"): SKIP_CLIPS,
    ("rows", "masters-dynamic"): REFUSED,
    ("rows", "agn"): REFUSED,
    ("dynamic", "multitask"): IDLE_COUNTS,
    ("dynamic", "dynamic"): REFUSED,
    ("dynamic", "masters-dynamic"): REFUSED,
    ("masters-dynamic", "multitask"): IDLE_COUNTS,
    ("masters-dynamic", "dynamic"): REFUSED,
    ("masters-dynamic", "masters-dynamic"): REFUSED,
    ("masters-dynamic", "agn"): REFUSED,
    ("agn", "multitask"): ZEROS_GO_ROUND,
    ("agn", "dynamic"): REFUSED,
    ("agn", "masters-dynamic"): REFUSED,
    ("agn", "agn"): REFUSED,
}
"""(outer, inner) -> result, for each pair. A fixed scale is like a dynamic one."""


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


def has_masters(stack: str) -> bool:
    """Return whether half-precision variables are trained through masters."""
    return "masters" in stack


def skips(stack: str) -> bool:
    """Return whether steps with non-finite gradients are skipped."""
    scaling = ("fixed", "dynamic", "patient", "clipped", "masters")
    return any(layer.startswith(scaling) for layer in stack.split()[:-1])


# -- data-parallel training on PyTorch: the rows of docs/data_parallel.md -------------

Cells = tuple[str, str, str]
"""What happens in DDP, FSDP2 and tensor parallelism."""

EVERYWHERE: Cells = ("right", "right", "right")
WHOLE_ONLY: Cells = ("right", "refused", "refused")

PARALLEL: dict[str, Cells] = {
    "`MultitaskOptimizerWrapper`": EVERYWHERE,
    "`MixedPrecisionLossScaleOptimizer`": EVERYWHERE,
    "`DynamicLossScale`, `AutomaticLossScaler`": EVERYWHERE,
    "`MixedPrecisionOptimizerWrapper`": WHOLE_ONLY,
    "`VariableClippingOptimizer`, rows whole": EVERYWHERE,
    "`VariableClippingOptimizer`, rows split": WHOLE_ONLY,
    "`NovoGrad`": EVERYWHERE,
    "the optimizers of TensorFlow 1": EVERYWHERE,
    "`clip_gradients_by_global_norm`, `clip_by_global_norm`, "
    "`clip_gradients_by_norm`": EVERYWHERE,
    "`post_process_gradients` with LARC": EVERYWHERE,
    "`capturable=True`": WHOLE_ONLY,
    "`AGNOptimizer`": WHOLE_ONLY,
    "`optimize_loss`": (
        "[in DDP or instead of it](#the-whole-step)",
        "refused",
        "refused",
    ),
    "`compute_gradients`, `minimize`": (
        "with [`reduce_gradients`](clipping/larc.md#averaging-over-ranks)",
        "refused",
        "refused",
    ),
}


# -- the pipeline in plain code: what a stack computes, by stages ----------------------


class Pipeline:
    """Variables, a bare optimizer of the reference, and the stages around it.

    Args:
        stack: such as ``"multitask Adam"``.
        values: initial values. The rows of the first may be clipped.

    Attributes:
        scale: the loss scale.
    """

    def __init__(self, stack: str, values: Sequence[Array]) -> None:
        *self.layers, base = stack.split()
        self.notes: Collection[str] = notes_of(stack)
        self.dtypes = [value.dtype for value in values]
        wide = np.float32 if has_masters(stack) else None
        self.variables = [Variable(str(k), v, wide) for k, v in enumerate(values)]
        self.skips = skips(stack)
        optimizer = getattr(reference, f"{base}Optimizer")(**BASES[base])
        assert isinstance(optimizer, RuleOptimizer)
        self.base = optimizer
        self.scale, self.good_steps = np.float32(4.0), 0
        # The variables that workers would share, and this worker's gathered gradients.
        self.shared = [Variable(f"shared {v.name}", v.value) for v in self.variables]
        self.gathered = [np.zeros_like(v.value) for v in self.variables]
        self.local_step = 0

    def advance(self, arrays: Sequence[Array | None]) -> None:
        """Run a step with unscaled gradients."""
        gradients = [self.in_float32(gradient) for gradient in arrays]
        left = self.zero_filter(gradients)
        counts = left if "idle counts" not in self.notes else gradients
        finite = all(g is None or bool(np.isfinite(g).all()) for g in counts)
        if self.skips and any(g is not None for g in counts):
            self.move_scale(finite)
        applied = finite or not self.skips
        round_gradients = gradients if "zeros go round" in self.notes else left
        if applied:
            self.update(self.variables, left)
        if applied or "skip clips" in self.notes:
            self.row_clip(
                self.variables, gradients if "zero clips" in self.notes else left
            )
        if (
            applied
            and "agn" in self.layers
            and any(g is not None for g in round_gradients)
        ):
            self.go_round(round_gradients)

    def update(
        self, variables: Sequence[Variable], gradients: Sequence[Array | None]
    ) -> None:
        """Run a step of the bare optimizer, unless all gradients are None."""
        if any(g is not None for g in gradients):
            self.base.apply_gradients(zip(gradients, variables, strict=True))

    def go_round(self, arrays: Sequence[Array | None]) -> None:
        """Gather gradients. At the end of a round update the shared variables; pull."""
        for k, gradient in enumerate(arrays):
            if gradient is not None:
                self.gathered[k] = self.gathered[k] + gradient
        self.local_step += 1
        if self.local_step % ROUND:
            return
        means = [
            None if g is None else gathered / np.float32(ROUND)
            for g, gathered in zip(arrays, self.gathered, strict=True)
        ]
        left = self.zero_filter(means) if "zeros go round" in self.notes else means
        self.update(self.shared, left)
        self.row_clip(self.shared, means if "zero clips" in self.notes else left)
        for k, mean in enumerate(means):
            if mean is not None:
                self.variables[k].value = self.shared[k].value
                self.gathered[k] = np.zeros_like(mean)

    def in_float32(self, gradient: Array | None) -> Array | None:
        """Return a gradient in the dtype that the base optimizer needs."""
        if gradient is None or not any("masters" in layer for layer in self.layers):
            return gradient
        return gradient.astype(np.float32)

    def zero_filter(self, gradients: Sequence[Array | None]) -> list[Array | None]:
        """Replace gradients without a nonzero element by None."""
        if "multitask" not in self.layers:
            return list(gradients)
        return [None if g is None or not g.any() else g for g in gradients]

    def move_scale(self, finite: bool) -> None:
        """Halve the scale, or double it at every second finite step."""
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.scale = max(self.scale / np.float32(2), np.float32(1))
        elif self.good_steps == PERIOD:
            self.scale, self.good_steps = self.scale * np.float32(2), 0

    def row_clip(
        self, variables: Sequence[Variable], gradients: Sequence[Array | None]
    ) -> None:
        """Clip the rows of the first variable that are too long."""
        if "rows" in self.layers and gradients[0] is not None:
            table = variables[0]
            table.value, _ = clip_rows(table.value, (1,), MAX_NORM)

    def values(self) -> list[Array]:
        """Return the variables in the dtypes of the model."""
        pairs = zip(self.variables, self.dtypes, strict=True)
        return [variable.value.astype(dtype) for variable, dtype in pairs]
