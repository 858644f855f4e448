"""What is right where a framework has rules of its own: the same rules in NumPy.

``differences.toml`` names `keras_rules` or `own_powers`, which return a driver. Each
rule of Keras is ``update_step`` of the optimizer's module in ``keras/src/optimizers``
(Keras 3.15), operation by operation and in the same dtype: ``adam.py``, ``sgd.py``,
``rmsprop.py``, ``adagrad.py`` and ``ftrl.py``. Weight decay is
``_apply_weight_decay`` of ``base_optimizer.py``, which also counts ``iterations``: one
count for all variables, for every call that is not skipped for infinities. A sparse
gradient updates every row, because the subtraction from a slot makes it dense. Numbers
stay Python floats until they meet an array, so 1 - beta is a float64 difference.
TensorFlow's kernels flush subnormals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import mock

import numpy as np

from harness.parity.drivers.reference import NumpyDriver
from lockstep import reference, registry
from lockstep.interface import Array, Rows
from lockstep.optimizers import OPTIMIZERS
from lockstep.pipeline import base_of
from lockstep.reference import arrays, loss_scaling, multitask, variable_clipping
from lockstep.reference.agn import Center
from lockstep.reference.arrays import Variable, densify
from lockstep.reference.arrays import flush_subnormals as flushed
from lockstep.reference.optimizers import RuleOptimizer, Slots

Updated = tuple[Array, dict[str, Array]]


class KerasOptimizer(RuleOptimizer):
    """A rule of Keras under TensorFlow 1's arguments and names of slots.

    ``widens_half``: half precision is computed, and has its slots, in float32.
    """

    update_step: ClassVar[Callable[..., Updated]]
    widens_half = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shared = {"iterations": np.zeros((), np.int64)}

    def working_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of slots and arithmetic."""
        return np.promote_types(dtype, np.float32) if self.widens_half else dtype

    def update(self, gradient: Array | Rows, variable: Variable) -> None:
        """Apply the rule to every row; rows without an index have gradient 0."""
        dtype = self.working_dtype(variable.dtype)
        if isinstance(gradient, Rows):
            gradient = densify(gradient, variable.shape)
        slots = self.slots.get(variable) or self.initial_slots(variable)
        given = {**self.arguments, "step": dtype.type(self.shared["iterations"] + 1)}
        given["learning_rate"] = dtype.type(np.float32(given["learning_rate"]))
        with np.errstate(all="ignore"):
            value, gradient = (
                flushed(np.asarray(a, dtype)) for a in (variable.value, gradient)
            )
            rule = type(self).update_step
            value, slots = rule(SimpleNamespace(**given), value, slots, gradient)
            self.slots[variable] = {k: flushed(v) for k, v in slots.items()}
            variable.value = flushed(value).astype(variable.dtype)

    def advance_shared(self) -> None:
        """Count the step."""
        self.shared["iterations"] = self.shared["iterations"] + 1


def sgd(own: Any, w: Array, slots: dict[str, Array], g: Array) -> Updated:
    """m = mu m - lr g; w += m, or mu m - lr g. Without momentum there is no slot."""
    if own.momentum == 0:
        return w - g * own.learning_rate, {}
    m = slots["momentum"] * own.momentum - g * own.learning_rate
    change = m * own.momentum - g * own.learning_rate if own.use_nesterov else m
    return w + change, {"momentum": m}


def adam(own: Any, w: Array, slots: dict[str, Array], g: Array) -> Updated:
    """m += (g - m)(1 - b1); v += (g^2 - v)(1 - b2); w -= m a / (sqrt(v) + eps)."""
    number = type(own.step)
    power1, power2 = number(own.beta1) ** own.step, number(own.beta2) ** own.step
    alpha = own.learning_rate * np.sqrt(1 - power2) / (1 - power1)
    m = slots["m"] + (g - slots["m"]) * (1 - own.beta1)
    v = slots["v"] + (g * g - slots["v"]) * (1 - own.beta2)
    return w - (m * alpha) / (np.sqrt(v) + own.epsilon), {"m": m, "v": v}


def adamw(own: Any, w: Array, slots: dict[str, Array], g: Array) -> Updated:
    """w -= w decay lr, then Adam."""
    return adam(own, w - w * own.weight_decay * own.learning_rate, slots, g)


def adagrad(own: Any, w: Array, slots: dict[str, Array], g: Array) -> Updated:
    """acc += g^2; w -= lr g / sqrt(acc): epsilon is 0."""
    total = slots["accumulator"] + g * g
    return w - own.learning_rate * g / np.sqrt(total), {"accumulator": total}


def rmsprop(own: Any, w: Array, slots: dict[str, Array], g: Array) -> Updated:
    """v = d v + (1 - d) g^2; m = mu m + lr g / sqrt(v [- mg^2] + eps); w -= m.

    Without momentum there is no such slot.
    """
    rms = own.decay * slots["rms"] + (1 - own.decay) * (g * g)
    new, spread = {"rms": rms}, rms
    if own.centered:
        new["mg"] = own.decay * slots["mg"] + (1 - own.decay) * g
        spread = rms - new["mg"] * new["mg"]
    change = own.learning_rate * g / np.sqrt(spread + own.epsilon)
    if own.momentum > 0:
        change = new["momentum"] = own.momentum * slots["momentum"] + change
    return w - change, new


def ftrl(own: Any, w: Array, slots: dict[str, Array], g: Array) -> Updated:
    """n = acc + g^2; linear += G - (n^-p - acc^-p) / lr w; w = (clip - linear) / q.

    G = g + 2 s w and q = n^-p / lr + 2 l2. At a rate of 0 lockstep takes no step.
    """
    lr, power = own.learning_rate, -own.learning_rate_power
    if lr == 0:
        return w, slots
    l1, l2 = own.l1_regularization_strength, own.l2_regularization_strength
    total = slots["accum"] + g * g
    shrunk = g + 2 * own.l2_shrinkage_regularization_strength * w
    powers = total**power, slots["accum"] ** power
    linear = slots["linear"] + (shrunk - (powers[0] - powers[1]) / lr * w)
    value = (np.clip(linear, -l1, l1) - linear) / (powers[0] / lr + 2 * l2)
    return value, {"accum": total, "linear": linear}


def _class(name: str, rule: Callable[..., Updated], widens: bool = False) -> type[Any]:
    body = {"spec": OPTIMIZERS[name], "update_step": rule, "widens_half": widens}
    return type(OPTIMIZERS[name].class_name, (KerasOptimizer,), body)


KERAS: Mapping[str, type[Any]] = {
    "Momentum": _class("Momentum", sgd),
    "Adam": _class("Adam", adam, widens=True),
    "AdamW": _class("AdamW", adamw, widens=True),
    "Adagrad": _class("Adagrad", adagrad),
    "RMSProp": _class("RMSProp", rmsprop, widens=True),
    "Ftrl": _class("Ftrl", ftrl),
}
"""TensorFlow 1's name of a rule -> Keras' rule in NumPy."""

KerasAdam = KERAS["Adam"]


class Counting(reference.MultitaskOptimizerWrapper):
    """The wrapper on Keras, where ``iterations`` counts every call."""

    def apply_gradients(self, *args: Any, **kwargs: Any) -> None:
        """Take a step, and count it if every gradient is zero."""
        super().apply_gradients(*args, **kwargs)
        if not self.last_step.applied:
            base_of(self).advance_shared()


EXACT_ROWS, EXACT_CLIPPING = variable_clipping.scaled, multitask.clipped_in
FLUSHING: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (multitask, "is_all_zero", lambda g, flush=False: arrays.is_all_zero(g, True)),
    (multitask, "clipped_in", lambda d, g, n, flush: EXACT_CLIPPING(d, g, n, True)),
    (loss_scaling, "times", lambda g, f, flush=False: arrays.times(g, f, True)),
    (variable_clipping, "scaled", lambda *args: flushed(EXACT_ROWS(*args))),
)
"""Module of the reference, name, and what flushes subnormals in its place."""


class KerasDriver(NumpyDriver):
    """The reference as Keras runs it, until the driver is closed."""

    def __init__(self) -> None:
        classes = {rule.__name__: rule for rule in KERAS.values()}
        own = {"MultitaskOptimizerWrapper": Counting, "optimize_loss": self.optimize}
        names: Any = SimpleNamespace(**{**vars(reference), **classes, **own})
        super().__init__(names)
        self.make_center = OwnPowers
        self.changes = ExitStack()
        for change in FLUSHING:
            self.changes.enter_context(mock.patch.object(*change))

    @staticmethod
    def optimize(loss: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call ``optimize_loss`` with Keras' rule of this name."""
        rule = KERAS.get(optimizer, optimizer) if isinstance(optimizer, str) else None
        return reference.optimize_loss(loss, rule or optimizer, *args, **kwargs)

    def shared(self, optimizer: Any) -> dict[str, Array]:
        """Return nothing: Keras computes its powers from ``iterations``."""
        return {}

    def close(self) -> None:
        """Let the default keep subnormals again."""
        self.changes.close()


def keras_rules() -> NumpyDriver:
    """Return the reference's default around Keras' own rules."""
    return KerasDriver()


class OwnPowers(Center):
    """A center that applies a push with its own powers instead of the worker's."""

    powers: Slots | None = None

    def push(self, changes: Mapping[str, Array], optimizer: Any = None) -> None:
        """Apply mean gradients with the worker's optimizer and the center's powers."""
        base = base_of(optimizer)
        workers = base.shared
        base.shared = self.powers or type(base)(**base.arguments).shared
        super().push(changes, optimizer)
        self.powers, base.shared = base.shared, workers


def own_powers() -> NumpyDriver:
    """Return a driver whose workers share such a center, as on PyTorch."""
    driver = NumpyDriver(registry.load("reference"))
    driver.make_center = OwnPowers
    return driver
