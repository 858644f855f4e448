"""The parameter tables of the TF1 optimizers: names, defaults, ranges and slots.

Names, order and defaults are the same as in ``tf.compat.v1.train`` (AdamW:
``tf.contrib.opt``), so code written for these optimizers runs unchanged.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lockstep.errors import OutOfRangeError, sentence, unknown_name

REQUIRED = object()


@dataclass(frozen=True)
class Parameter:
    """One constructor argument: its default and the claim that it must satisfy."""

    name: str
    default: Any
    claim: str
    admits: Callable[[Any], bool]

    def check(self, owner: str, value: Any) -> None:
        """Raise OutOfRangeError unless ``value`` satisfies the claim."""
        try:
            fine = self.admits(value)
        except (TypeError, ValueError, OverflowError):
            fine = False
        if not fine:
            subject = f"{owner}: {self.name}"
            default = "" if self.default is REQUIRED else f" (default {self.default!r})"
            remedy = f"give {self.claim}{default}"
            raise OutOfRangeError(sentence(subject, self.claim, repr(value), remedy))


@dataclass(frozen=True)
class Slot:
    """One state tensor per variable; ``initial`` is a number or a parameter's name.

    It has its variable's shape and dtype or, if ``scalar``, is one number of at least
    float32.
    """

    name: str
    initial: float | str = 0.0
    only_if: str | None = None
    scalar: bool = False


@dataclass(frozen=True)
class OptimizerSpec:
    """One optimizer: its parameters in positional order, its slots, its shared state.

    ``shared`` maps the name of a scalar that all variables share to a parameter. The
    scalar starts at this parameter and is multiplied by it after every applied step.
    ``suffix`` ends the names of TF1's classes. ``ending``: the constructor's last
    arguments in TF1's order; those that are no parameters do not affect the results.
    """

    name: str
    parameters: tuple[Parameter, ...]
    slots: tuple[Slot, ...] = ()
    shared: Mapping[str, str] | None = None
    suffix: str = "Optimizer"
    ending: tuple[str, ...] = ("use_locking", "name")

    @property
    def signature(self) -> inspect.Signature:
        """The constructor's arguments, as in TF1."""
        kind, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
        defaults = {
            "use_locking": False,
            "name": self.name,
            **{p.name: p.default for p in self.parameters},
        }
        first = [p.name for p in self.parameters if p.name not in self.ending]
        values = {name: defaults.get(name) for name in (*first, *self.ending)}
        return inspect.Signature(
            [
                inspect.Parameter(name, kind, default=empty if d is REQUIRED else d)
                for name, d in values.items()
            ]
        )

    @property
    def class_name(self) -> str:
        """The name of the class on every backend, such as ``AdamOptimizer``."""
        return self.name + self.suffix

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Bind arguments to parameter names, fill in defaults and check the ranges."""
        known = list(self.signature.parameters)
        for name in kwargs:
            if name not in known:
                raise unknown_name(f"{self.class_name}: argument", name, known)
        if len(args) > len(known):
            raise TypeError(
                f"{self.class_name} takes at most {len(known)} arguments, "
                f"got {len(args)}; they are {', '.join(known)}."
            )
        arguments = {**dict(zip(known, args, strict=False)), **kwargs}
        bound = {}
        for parameter in self.parameters:
            value = arguments.get(parameter.name, parameter.default)
            if value is REQUIRED:
                raise TypeError(f"{self.class_name} needs {parameter.name}.")
            parameter.check(self.class_name, value)
            bound[parameter.name] = value
        return bound

    def active_slots(self, bound: Mapping[str, Any]) -> tuple[Slot, ...]:
        """Return the slots that exist with the bound arguments."""
        return tuple(s for s in self.slots if s.only_if is None or bound[s.only_if])

    def initial_value(self, slot: Slot, bound: Mapping[str, Any]) -> float:
        """Return the initial value of a slot's elements."""
        start = slot.initial
        return float(bound[start] if isinstance(start, str) else start)


def _is_finite(value: Any) -> bool:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _at_least_zero(name: str, default: Any = 0.0) -> Parameter:
    return Parameter(
        name, default, "a finite number >= 0", lambda v: _is_finite(v) and v >= 0
    )


def _share(name: str, default: Any) -> Parameter:
    return Parameter(
        name, default, "a number in [0, 1]", lambda v: _is_finite(v) and 0 <= v <= 1
    )


def _beta(name: str, default: Any) -> Parameter:
    return Parameter(
        name, default, "a number in [0, 1)", lambda v: _is_finite(v) and 0 <= v < 1
    )


def _flag(name: str) -> Parameter:
    return Parameter(name, False, "a bool", lambda v: isinstance(v, bool))


_RATE = _at_least_zero("learning_rate", REQUIRED)
_ADAM = (
    _at_least_zero("learning_rate", 0.001),
    _beta("beta1", 0.9),
    _beta("beta2", 0.999),
    _at_least_zero("epsilon", 1e-8),
)
_POWERS = {"beta1_power": "beta1", "beta2_power": "beta2"}
_MOMENTS = (Slot("m"), Slot("v"))

OPTIMIZERS: Mapping[str, OptimizerSpec] = {
    spec.name: spec
    for spec in (
        OptimizerSpec("GradientDescent", (_RATE,)),
        OptimizerSpec(
            "Momentum",
            (_RATE, _share("momentum", REQUIRED), _flag("use_nesterov")),
            (Slot("momentum"),),
            ending=("use_locking", "name", "use_nesterov"),
        ),
        OptimizerSpec("Adam", _ADAM, _MOMENTS, _POWERS),
        OptimizerSpec(
            "Adagrad",
            (
                _RATE,
                Parameter(
                    "initial_accumulator_value",
                    0.1,
                    "a finite number > 0",
                    lambda v: _is_finite(v) and v > 0,
                ),
            ),
            (Slot("accumulator", "initial_accumulator_value"),),
        ),
        OptimizerSpec(
            "RMSProp",
            (
                _RATE,
                _share("decay", 0.9),
                _share("momentum", 0.0),
                _at_least_zero("epsilon", 1e-10),
                _flag("centered"),
            ),
            (Slot("rms", 1.0), Slot("momentum"), Slot("mg", only_if="centered")),
            ending=("use_locking", "centered", "name"),
        ),
        OptimizerSpec(
            "Ftrl",
            (
                _RATE,
                Parameter(
                    "learning_rate_power",
                    -0.5,
                    "a finite number <= 0",
                    lambda v: _is_finite(v) and v <= 0,
                ),
                _at_least_zero("initial_accumulator_value", 0.1),
                _at_least_zero("l1_regularization_strength"),
                _at_least_zero("l2_regularization_strength"),
                _at_least_zero("l2_shrinkage_regularization_strength"),
            ),
            (Slot("accum", "initial_accumulator_value"), Slot("linear")),
            ending=(
                "use_locking",
                "name",
                "accum_name",
                "linear_name",
                "l2_shrinkage_regularization_strength",
            ),
        ),
        OptimizerSpec(
            "AdamW",
            (_at_least_zero("weight_decay", REQUIRED), *_ADAM),
            _MOMENTS,
            _POWERS,
        ),
    )
}

NOVOGRAD = OptimizerSpec(
    "NovoGrad",
    (
        _at_least_zero("learning_rate", 1.0),
        _beta("beta1", 0.95),
        _beta("beta2", 0.98),
        _at_least_zero("epsilon", 1e-8),
        _at_least_zero("weight_decay"),
        _flag("grad_averaging"),
    ),
    (Slot("momentum"), Slot("second_moment", scalar=True)),
    suffix="",
)
"""OpenSeq2Seq's NovoGrad; TensorFlow 1 has none."""

RULES: Mapping[str, OptimizerSpec] = {**OPTIMIZERS, NOVOGRAD.name: NOVOGRAD}
"""Name -> optimizer with the same name and arguments on every backend."""
