"""The words of ``optimize_loss``: its arguments, their checks, and what a step says."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lockstep.spec import larc, mixed_precision
from lockstep.spec.automatic_scaler import algorithm_name
from lockstep.spec.clip_by_global_norm import check_limit
from lockstep.spec.errors import (
    MissingArgumentError,
    MissingDecayError,
    NotAnOptimizerError,
    OutOfRangeError,
    UnknownArgumentError,
    UnsupportedError,
    nearest,
    sentence,
    unknown_name,
)
from lockstep.spec.lr_policies import dtype_name
from lockstep.spec.optimizers import OPTIMIZERS, REQUIRED
from lockstep.spec.pipeline import in_order, stages_of, strictly_ordered
from lockstep.spec.training_step import (
    OWNER,
    DecayNow,
    absent_accumulated,
    check_rate,
    loss_not_callable,
    other_state,
    report_accumulated,
    report_applied,
    sparse_accumulated,
    varying,
)

__all__ = [
    "CLASS_NAMES",
    "DECAYING",
    "DTYPES",
    "OWNER",
    "DecayNow",
    "Settings",
    "absent_accumulated",
    "arguments_for",
    "check_rate",
    "check_stack",
    "instance",
    "loss_not_callable",
    "no_flag",
    "no_variables",
    "not_an_optimizer",
    "other_state",
    "rate_argument",
    "report_accumulated",
    "report_applied",
    "several_rates",
    "sparse_accumulated",
    "varying",
]

DTYPES = ("float32", "float16", "mixed")
CLASS_NAMES: Mapping[str, str] = {
    "Adagrad": "AdagradOptimizer",
    "Adam": "AdamOptimizer",
    "Ftrl": "FtrlOptimizer",
    "Momentum": "MomentumOptimizer",
    "RMSProp": "RMSPropOptimizer",
    "SGD": "GradientDescentOptimizer",
    "AdamW": "AdamWOptimizer",
}
"""The names of ``OPTIMIZER_CLS_NAMES``, and the class that each stands for."""
DECAYING = "AdamW"
"""The name whose ``weight_decay`` is multiplied by the rate."""
ALWAYS = ("use_locking", "name")
"""Arguments that every optimizer takes."""


@dataclass(frozen=True)
class Settings:
    """The arguments of one call that are plain values, checked.

    Attributes:
        dtype: "mixed": half-precision variables have float32 masters, and the loss is
            scaled; otherwise the loss is not scaled.
        clip_gradients: the largest global norm, > 0; None: not clipped.
        larc_params: of LARC; None: no LARC. Not together with ``clip_gradients``.
        loss_scaling: a number, the name of a scaler, or a scale object of the host.
        loss_scaling_params: of the named scaler; refused where none is named.
        on_horovod: average the gradients over the ranks, if there are several.
        iter_size: micro-batches in a step, >= 1.
        has_flag: whether ``skip_update_ph`` was given.
        strict: as in OpenSeq2Seq: ``iter_size`` without ``on_horovod`` is ignored, and
            with it needs ``skip_update_ph``; nothing but the names is checked.

    Raises:
        ClipAndLarcError: both were given.
        UnknownNameError: a dtype or a scaler that does not exist.
        OutOfRangeError: a number out of its range.
        UnusableScaleError: strict: a loss scale that is no float, with "mixed".
        UnsupportedError: arguments of a scaler, and none is named; strict: accumulation
            without ``skip_update_ph``.
    """

    dtype: Any = "float32"
    clip_gradients: float | None = None
    larc_params: Mapping[str, Any] | None = None
    loss_scaling: Any = 1.0
    loss_scaling_params: Mapping[str, Any] | None = None
    on_horovod: bool = False
    iter_size: int = 1
    has_flag: bool = False
    strict: bool = False

    def __post_init__(self) -> None:
        if self.clip_gradients is not None and self.larc_params is not None:
            raise larc.clip_and_larc()
        if self.larc_params is not None:
            larc.larc_policy(self.larc_params, self.strict)
        if self.scaler_name is not None:
            algorithm_name(self.scaler_name)
        if not self.strict:
            self._check()
        elif self.accumulates and not self.has_flag:
            raise no_flag()
        elif self.mixed and self.scaler_name is None:
            self._check_scale()

    def _check(self) -> None:
        name = dtype_name(self.dtype)
        if name not in DTYPES:
            raise unknown_name(f"{OWNER}: dtype", name, DTYPES)
        if self.clip_gradients is not None:
            check_limit(OWNER, "clip_gradients", self.clip_gradients)
        size = self.iter_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            expected, remedy = "an int >= 1", "give the micro-batches in a step"
            text = sentence(f"{OWNER}: iter_size", expected, repr(size), remedy)
            raise OutOfRangeError(text)
        if self.mixed and isinstance(self.loss_scaling, int | float):
            mixed_precision.scale_number(self.loss_scaling)
        if self.loss_scaling_params and self.scaler_name is None:
            raise without_scaler(self.loss_scaling_params, self.loss_scaling)

    def _check_scale(self) -> None:
        """Raise for a number that the original accepts and fails to use.

        # Quirk: docs/differences.md#masters-scale-type
        """
        number = isinstance(self.loss_scaling, int) or hasattr(
            self.loss_scaling, "dtype"
        )
        if number and mixed_precision.scale_number(self.loss_scaling, True) is None:
            raise mixed_precision.unusable(self.loss_scaling)

    @property
    def mixed(self) -> bool:
        """Whether half-precision variables have masters and the loss is scaled."""
        return isinstance(self.dtype, str) and self.dtype == "mixed"

    @property
    def scaler_name(self) -> str | None:
        """The name of the automatic scaler, if the loss scale is one."""
        return self.loss_scaling if isinstance(self.loss_scaling, str) else None

    @property
    def makes_scaler(self) -> bool:
        """Whether the named scaler is made.

        # Quirk: docs/differences.md#optimize-loss-scaler. Strict: also if it is unused.
        """
        return self.scaler_name is not None and (self.mixed or self.strict)

    @property
    def accumulates(self) -> bool:
        """Whether several micro-batches make a step.

        # Quirk: docs/differences.md#optimize-loss-iter-size. Strict: only over ranks.
        """
        return self.iter_size > 1 and (self.on_horovod or not self.strict)

    def pipeline(self, optimizer: Any) -> tuple[str, ...]:
        """Return the stages that are active with this optimizer, in their order."""
        own = {
            "accumulate": self.accumulates,
            "reduce": self.on_horovod,
            "norm": self.clip_gradients is not None,
            "clip": self.clip_gradients is not None,
            "larc": self.larc_params is not None,
            "update": True,
        }
        active = [*stages_of(optimizer), *(name for name in own if own[name])]
        return strictly_ordered(in_order(active)) if self.strict else in_order(active)


def arguments_for(
    optimizer: Any, optimizer_params: Mapping[str, Any] | None, strict: bool
) -> dict[str, Any]:
    """Return a checked copy of the arguments of an optimizer that is given by name.

    Those of a class are copied as they are.

    Raises:
        UnknownNameError: no optimizer has this name; an argument that the optimizer
            does not have (a TypeError too).
        MissingArgumentError: one that it needs.
        MissingDecayError: ``weight_decay`` of AdamW.
        OutOfRangeError: a value out of its range.
    """
    given = dict(optimizer_params or {})
    if not isinstance(optimizer, str):
        return given
    if optimizer not in CLASS_NAMES:
        raise unknown_name(f"{OWNER}: optimizer", optimizer, CLASS_NAMES)
    if optimizer == DECAYING and "weight_decay" not in given:
        raise missing_decay()
    spec = OPTIMIZERS[CLASS_NAMES[optimizer].removesuffix("Optimizer")]
    known = {p.name: p for p in spec.parameters if p.name != "learning_rate"}
    for name in given:
        if name not in known and name not in ALWAYS:
            raise unknown_argument(optimizer, name, (*known, *ALWAYS))
    for name, parameter in known.items():
        if name not in given and parameter.default is REQUIRED:
            raise missing_argument(optimizer, name)
        if name in given and not callable(given[name]) and not strict:
            parameter.check(f"{OWNER}: {optimizer}", given[name])
    return given


def check_stack(settings: Settings, optimizer: Any) -> None:
    """Raise for a stack that clips by itself, beside LARC; strict: nothing is asked."""
    clips = not settings.strict and "clip" in stages_of(optimizer)
    if clips and settings.larc_params is not None:
        raise larc.clip_and_larc()


def rate_argument(make: Callable[..., Any]) -> str:
    """Return what a class calls its rate: ``learning_rate``, or ``lr`` as in torch."""
    spec = getattr(make, "spec", None)
    if spec is not None:
        names = {parameter.name for parameter in spec.parameters}
        return "lr" if "lr" in names else "learning_rate"
    try:
        return "lr" if "lr" in inspect.signature(make).parameters else "learning_rate"
    except (TypeError, ValueError):
        return "learning_rate"


def unknown_argument(
    optimizer: str, name: str, known: Sequence[str]
) -> UnknownArgumentError:
    """An argument that an optimizer does not have; the rate has a place of its own."""
    close = nearest(name, known)
    remedy = f"did you mean {close!r}" if close else "choose one of them"
    if name == "learning_rate":
        remedy = "let learning_rate_decay_fn return it"
    expected = f"one of {', '.join(known)}"
    subject = f"{OWNER}: optimizer_params of {optimizer}"
    return UnknownArgumentError(sentence(subject, expected, repr(name), remedy))


def missing_argument(optimizer: str, name: str) -> MissingArgumentError:
    """An argument without a default."""
    subject, remedy = f"{OWNER}: optimizer_params of {optimizer}", f"add {name!r}"
    return MissingArgumentError(sentence(subject, repr(name), "none", remedy))


def missing_decay() -> MissingDecayError:
    """AdamW without what it is there for."""
    subject, remedy = f"{OWNER}: optimizer_params of AdamW", "add it, or take 'Adam'"
    return MissingDecayError(sentence(subject, "'weight_decay'", "none", remedy))


def instance(optimizer: object, arguments: Mapping[str, Any]) -> NotAnOptimizerError:
    """An optimizer that is made already: strict, or with arguments for another one.

    # Quirk: docs/differences.md#optimize-loss-instance
    """
    expected = "the name of an optimizer, a class, or a function that makes one"
    remedy = "pass its class, and its arguments as optimizer_params"
    beside = f" beside {', '.join(arguments)}" if arguments else ""
    got = f"an instance of {type(optimizer).__name__}{beside}"
    return NotAnOptimizerError(sentence(f"{OWNER}: optimizer", expected, got, remedy))


def several_rates(rates: Sequence[float]) -> UnsupportedError:
    """An optimizer whose groups have rates of their own."""
    expected, got = "an optimizer with one rate", ", ".join(f"{r:g}" for r in rates)
    remedy = "give its groups the same one, for each step sets it"
    return UnsupportedError(sentence(f"{OWNER}: optimizer", expected, got, remedy))


def not_an_optimizer(optimizer: object, expected: str) -> NotAnOptimizerError:
    """What is no optimizer, nor anything that makes one."""
    got = f"a {type(optimizer).__name__}"
    remedy = "pass a name of OPTIMIZER_CLS_NAMES, or a class"
    return NotAnOptimizerError(
        sentence(f"{OWNER}: optimizer", f"a {expected}", got, remedy)
    )


def no_variables(expected: str) -> UnsupportedError:
    """Nothing that could be trained was given."""
    remedy = "pass the variables that this optimizer is to train"
    return UnsupportedError(sentence(f"{OWNER}: var_list", expected, "neither", remedy))


def without_scaler(given: Any, loss_scaling: object) -> UnsupportedError:
    """Arguments of a loss scaler that nobody named, so that nothing would have them.

    # Quirk: docs/differences.md#optimize-loss-scaler
    """
    named = ", ".join(map(repr, given)) if isinstance(given, Mapping) else repr(given)
    number = isinstance(loss_scaling, int | float)
    kind = repr(loss_scaling) if number else f"a {type(loss_scaling).__name__}"
    expected = "the name of a scaler as loss_scaling, which takes them"
    remedy = 'pass loss_scaling="Backoff" or "LogMax", or leave them out'
    subject = f"{OWNER}: loss_scaling_params"
    return UnsupportedError(
        sentence(subject, expected, f"{named} beside {kind}", remedy)
    )


def no_flag() -> UnsupportedError:
    """Strict: accumulation that is not told when to stop.

    # Quirk: docs/differences.md#optimize-loss-flag
    """
    remedy = "give it, or leave strict off: the steps are counted then"
    expected = "skip_update_ph with iter_size > 1"
    return UnsupportedError(sentence(OWNER, expected, "None", remedy))
