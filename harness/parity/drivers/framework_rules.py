"""What is right where a framework has rules of its own: the same rules in NumPy.

``differences.toml`` names a driver of this module. Each rule of Keras is
``update_step`` of the optimizer's module in ``keras/src/optimizers`` (Keras 3.15),
operation by operation and in the same dtype: ``adam.py``, ``sgd.py``, ``rmsprop.py``,
``adagrad.py`` and ``ftrl.py``. Weight decay is ``_apply_weight_decay`` of
``base_optimizer.py``, which also counts ``iterations``: one count for all variables,
for every call that is not skipped for infinities. A sparse gradient updates every row,
because the subtraction from a slot makes it dense. Numbers stay Python floats until
they meet an array, so 1 - beta is a float64 difference. TensorFlow's kernels flush
subnormals.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from harness.parity.drivers.reference import NumpyDriver
from lockstep import reference
from lockstep.interface import Array, Rows
from lockstep.optimizers import OPTIMIZERS
from lockstep.pipeline import base_of
from lockstep.reference import arrays, loss_scaling, multitask, variable_clipping
from lockstep.reference.agn import Center
from lockstep.reference.arrays import Variable, densify
from lockstep.reference.arrays import flush_subnormals as flushed
from lockstep.reference.optimizers import RuleOptimizer, Slots, Updated
from lockstep.reference.optimizers import adam as moments_of_adam


def sgd(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """m = mu m - lr g; w += m, or mu m - lr g. Without momentum there is no slot."""
    if h.momentum == 0:
        return w - g * h.learning_rate, {}
    m = slots["momentum"] * h.momentum - g * h.learning_rate
    change = m * h.momentum - g * h.learning_rate if h.use_nesterov else m
    return w + change, {"momentum": m}


def adam(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """Take TensorFlow 1's order of operations, and powers from the count of steps."""
    number = type(h.step)
    h.beta1_power, h.beta2_power = number(h.beta1) ** h.step, number(h.beta2) ** h.step
    return moments_of_adam(h, w, slots, g)


def adamw(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """w -= w decay lr, then Adam."""
    return adam(h, w - w * h.weight_decay * h.learning_rate, slots, g)


def adagrad(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """acc += g^2; w -= lr g / sqrt(acc): epsilon is 0."""
    total = slots["accumulator"] + g * g
    return w - h.learning_rate * g / np.sqrt(total), {"accumulator": total}


def rmsprop(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """v = d v + (1 - d) g^2; m = mu m + lr g / sqrt(v [- mg^2] + eps); w -= m.

    Without momentum there is no such slot.
    """
    rms = h.decay * slots["rms"] + (1 - h.decay) * (g * g)
    new, spread = {"rms": rms}, rms
    if h.centered:
        new["mg"] = h.decay * slots["mg"] + (1 - h.decay) * g
        spread = rms - new["mg"] * new["mg"]
    change = h.learning_rate * g / np.sqrt(spread + h.epsilon)
    if h.momentum > 0:
        change = new["momentum"] = h.momentum * slots["momentum"] + change
    return w - change, new


def ftrl(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """n = acc + g^2; linear += G - (n^-p - acc^-p) / lr w; w = (clip - linear) / q.

    G = g + 2 s w and q = n^-p / lr + 2 l2. At a rate of 0 lockstep takes no step.
    """
    lr, power = h.learning_rate, -h.learning_rate_power
    if lr == 0:
        return w, slots
    l1, l2 = h.l1_regularization_strength, h.l2_regularization_strength
    total = slots["accum"] + g * g
    shrunk = g + 2 * h.l2_shrinkage_regularization_strength * w
    powers = total**power, slots["accum"] ** power
    linear = slots["linear"] + (shrunk - (powers[0] - powers[1]) / lr * w)
    value = (np.clip(linear, -l1, l1) - linear) / (powers[0] / lr + 2 * l2)
    return value, {"accum": total, "linear": linear}


RULES: Mapping[str, Callable[..., Updated]] = {
    "Momentum": sgd,
    "Adam": adam,
    "AdamW": adamw,
    "Adagrad": adagrad,
    "RMSProp": rmsprop,
    "Ftrl": ftrl,
}
"""TensorFlow 1's name of a rule -> Keras' rule."""
WIDENED = ("Adam", "AdamW", "RMSProp")
"""Rules that compute half precision, and have their slots, in float32."""


class KerasOptimizer(RuleOptimizer):
    """A rule of Keras under TensorFlow 1's arguments and names of slots."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.shared = {"iterations": np.zeros((), np.int64)}

    def working_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of slots and arithmetic."""
        widens = self.spec.name in WIDENED
        return np.promote_types(dtype, np.float32) if widens else dtype

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
            rule = RULES[self.spec.name]
            value, slots = rule(SimpleNamespace(**given), value, slots, gradient)
            self.slots[variable] = {k: flushed(v) for k, v in slots.items()}
            variable.value = flushed(value).astype(variable.dtype)

    def advance_shared(self) -> None:
        """Count the step."""
        self.shared["iterations"] = self.shared["iterations"] + 1


KERAS: Mapping[str, type[Any]] = {
    name: type(
        OPTIMIZERS[name].class_name, (KerasOptimizer,), {"spec": OPTIMIZERS[name]}
    )
    for name in RULES
}
"""TensorFlow 1's name of a rule -> the optimizer."""


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


class OwnPowersDriver(NumpyDriver):
    """The reference's default with such a center, as PyTorch and Keras have it."""

    make_center = OwnPowers

    def __init__(self, names: Any = reference) -> None:
        super().__init__(names)


class KerasDriver(OwnPowersDriver):
    """The reference's default around Keras' own rules, until the driver is closed."""

    def __init__(self) -> None:
        classes = {rule.__name__: rule for rule in KERAS.values()}
        own = {"MultitaskOptimizerWrapper": Counting, "optimize_loss": self.optimize}
        super().__init__(SimpleNamespace(**{**vars(reference), **classes, **own}))
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
