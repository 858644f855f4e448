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
    """One constructor argument: its default and the claim that it must satisfy.

    ``instead``: the remedy for messages, if repeating the claim would not help.
    """

    name: str
    default: Any
    claim: str
    admits: Callable[[Any], bool]
    instead: str | None = None

    def check(self, owner: str, value: Any) -> None:
        """Raise OutOfRangeError unless ``value`` satisfies the claim."""
        try:
            fine = self.admits(value)
        except (TypeError, ValueError, OverflowError):
            fine = False
        if not fine:
            subject = f"{owner}: {self.name}"
            default = "" if self.default is REQUIRED else f" (default {self.default!r})"
            remedy = self.instead or f"give {self.claim}{default}"
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


def _number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return _number(value) and math.isfinite(value)


def _not_negative(value: Any) -> bool:
    return _finite(value) and value >= 0


def _positive(value: Any) -> bool:
    return _finite(value) and value > 0


def _unit(value: Any) -> bool:
    return _finite(value) and 0 <= value <= 1


def _beta(value: Any) -> bool:
    return _finite(value) and 0 <= value < 1


RATE = Parameter("learning_rate", REQUIRED, "a finite number >= 0", _not_negative)
ADAM_RATE = Parameter("learning_rate", 0.001, "a finite number >= 0", _not_negative)
_BETAS = (
    Parameter("beta1", 0.9, "a number in [0, 1)", _beta),
    Parameter("beta2", 0.999, "a number in [0, 1)", _beta),
)
_ADAM = (
    ADAM_RATE,
    *_BETAS,
    Parameter("epsilon", 1e-8, "a finite number >= 0", _not_negative),
)
_POWERS = {"beta1_power": "beta1", "beta2_power": "beta2"}
_MOMENTS = (Slot("m"), Slot("v"))


def _strength(name: str) -> Parameter:
    return Parameter(name, 0.0, "a finite number >= 0", _not_negative)


OPTIMIZERS: Mapping[str, OptimizerSpec] = {
    spec.name: spec
    for spec in (
        OptimizerSpec("GradientDescent", (RATE,)),
        OptimizerSpec(
            "Momentum",
            (
                RATE,
                Parameter("momentum", REQUIRED, "a number in [0, 1]", _unit),
                Parameter(
                    "use_nesterov", False, "a bool", lambda v: isinstance(v, bool)
                ),
            ),
            (Slot("momentum"),),
            ending=("use_locking", "name", "use_nesterov"),
        ),
        OptimizerSpec("Adam", _ADAM, _MOMENTS, _POWERS),
        OptimizerSpec(
            "Adagrad",
            (
                RATE,
                Parameter(
                    "initial_accumulator_value", 0.1, "a finite number > 0", _positive
                ),
            ),
            (Slot("accumulator", "initial_accumulator_value"),),
        ),
        OptimizerSpec(
            "RMSProp",
            (
                RATE,
                Parameter("decay", 0.9, "a number in [0, 1]", _unit),
                Parameter("momentum", 0.0, "a number in [0, 1]", _unit),
                Parameter("epsilon", 1e-10, "a finite number >= 0", _not_negative),
                Parameter("centered", False, "a bool", lambda v: isinstance(v, bool)),
            ),
            (Slot("rms", 1.0), Slot("momentum"), Slot("mg", only_if="centered")),
            ending=("use_locking", "centered", "name"),
        ),
        OptimizerSpec(
            "Ftrl",
            (
                RATE,
                Parameter(
                    "learning_rate_power",
                    -0.5,
                    "a finite number <= 0",
                    lambda v: _finite(v) and v <= 0,
                ),
                Parameter(
                    "initial_accumulator_value",
                    0.1,
                    "a finite number >= 0",
                    _not_negative,
                ),
                _strength("l1_regularization_strength"),
                _strength("l2_regularization_strength"),
                _strength("l2_shrinkage_regularization_strength"),
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
            (
                Parameter(
                    "weight_decay", REQUIRED, "a finite number >= 0", _not_negative
                ),
                *_ADAM,
            ),
            _MOMENTS,
            _POWERS,
        ),
    )
}

NOVOGRAD = OptimizerSpec(
    "NovoGrad",
    (
        Parameter("learning_rate", 1.0, "a finite number >= 0", _not_negative),
        Parameter("beta1", 0.95, "a number in [0, 1)", _beta),
        Parameter("beta2", 0.98, "a number in [0, 1)", _beta),
        Parameter("epsilon", 1e-8, "a finite number >= 0", _not_negative),
        _strength("weight_decay"),
        Parameter("grad_averaging", False, "a bool", lambda v: isinstance(v, bool)),
    ),
    (Slot("momentum"), Slot("second_moment", scalar=True)),
    suffix="",
)
"""OpenSeq2Seq's NovoGrad; TensorFlow 1 has none."""

RULES: Mapping[str, OptimizerSpec] = {**OPTIMIZERS, NOVOGRAD.name: NOVOGRAD}
"""Name -> optimizer with the same name and arguments on every backend."""

TORCH_SGD = OptimizerSpec(
    "TorchSGD",
    (
        Parameter("lr", 0.001, "a finite number >= 0", _not_negative),
        Parameter("momentum", 0.0, "a number in [0, 1]", _unit),
        Parameter("nesterov", False, "a bool", lambda v: isinstance(v, bool)),
    ),
    (Slot("momentum"),),
)
"""``torch.optim.SGD``: the parameters that the reference reproduces."""

TORCH_ADAM = OptimizerSpec(
    "TorchAdam",
    (
        Parameter("lr", 0.001, "a finite number >= 0", _not_negative),
        *_BETAS,
        Parameter("eps", 1e-8, "a finite number >= 0", _not_negative),
    ),
    _MOMENTS,
)
"""``torch.optim.Adam``: the parameters that the reference reproduces."""
