"""The words of float32 masters: names, checks, and what every host says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from lockstep.messages.errors import (
    DtypeError,
    NotScalableError,
    UnknownNameError,
    UnsupportedError,
    UnusableScaleError,
    sentence,
)
from lockstep.messages.scaling import loss_scaling
from lockstep.messages.scaling.loss_scale import scale_argument

__all__ = [
    "LARGEST",
    "MASTERS",
    "REGULARIZERS",
    "SCOPE",
    "SUFFIX",
    "WRAPPER",
    "absent_half",
    "automatic_on_device",
    "bad_loss_scale",
    "built_already",
    "check_at_floor",
    "check_clip_norm",
    "check_regularizer",
    "clips_outside",
    "half_loss",
    "halved_since",
    "has_master",
    "master_name",
    "masters_inside",
    "needs_as_module",
    "not_an_optimizer",
    "own_gradient_changed",
    "scale_number",
    "scales_itself",
    "stalled",
    "twice",
    "unusable",
    "widened_since",
    "without_masters",
    "written_through_data",
]

WRAPPER = "MixedPrecisionOptimizerWrapper"
SCOPE = "FP32-master-copy"
"""Masters are called SCOPE/NAME."""
AT_MOST = 4
"""How many names a sentence lists."""
SUFFIX = "-MP"
"""The wrapper is called as its optimizer, and this."""
MASTERS = "FP32_MASTER_COPIES"
REGULARIZERS = "REGULARIZATION_FUNCTIONS"
"""The two collections of a graph."""
LARGEST: Mapping[str, float] = {
    "float16": 65504.0,
    "bfloat16": (2 - 2**-7) * 2.0**127,
}
"""Dtypes with a master, and the magnitude to which their weights are clamped."""


check_at_floor = partial(loss_scaling.check_at_floor, owner=WRAPPER)
check_clip_norm = partial(loss_scaling.check_clip_norm, strict=False, owner=WRAPPER)
stalled = partial(loss_scaling.stalled, owner=WRAPPER)
"""What the loss-scaling wrapper says too, in the name of this one."""


def has_master(dtype: str, strict: bool = False) -> bool:
    """Say whether a variable of this dtype is trained through a float32 master.

    Strict: float16 only; the original knew no bfloat16.
    """
    return dtype == "float16" if strict else dtype in LARGEST


def master_name(name: str) -> str:
    """Return the name of the master of the variable ``name``."""
    return f"{SCOPE}/{name}"


def scale_number(loss_scale: Any, strict: bool = False) -> float | None:
    """Return the static scale that ``loss_scale`` stands for; None if it is no number.

    None stands for 1. Strict: only floats are numbers, and none is checked.

    # Quirk: docs/differences.md#masters-scale-type

    Raises:
        OutOfRangeError: not positive, or not finite.
    """
    if loss_scale is None:
        return 1.0
    if strict:
        return float(loss_scale) if isinstance(loss_scale, float) else None
    return scale_argument(loss_scale, f"{WRAPPER}: loss_scale")


def bad_loss_scale(loss_scale: object) -> UnknownNameError:
    """Build the error for what is neither a number nor a scale object."""
    expected = "a number, None, 'dynamic', an AutomaticLossScaler or a loss scale"
    remedy = "for OpenSeq2Seq's scalers pass AutomaticLossScaler('Backoff')"
    subject = f"{WRAPPER}: loss_scale"
    return UnknownNameError(sentence(subject, expected, repr(loss_scale), remedy))


def unusable(loss_scale: object) -> UnusableScaleError:
    """Strict: what the original accepts and then cannot use, an AttributeError.

    # Quirk: docs/differences.md#masters-scale-type
    """
    expected = "a float or an AutomaticLossScaler"
    remedy = "the original fails at the first use; leave strict off"
    subject = f"{WRAPPER}: loss_scale"
    return UnusableScaleError(sentence(subject, expected, repr(loss_scale), remedy))


def not_an_optimizer(optimizer: object, expected: str) -> NotScalableError:
    """Build the error for an ``optimizer`` that cannot be wrapped."""
    got, remedy = type(optimizer).__name__, "pass the optimizer that is to train"
    if isinstance(optimizer, type):
        got, remedy = f"the class {optimizer.__name__}", "pass an instance"
    return NotScalableError(sentence(WRAPPER, f"a {expected}", got, remedy))


def check_regularizer(regularizer: object) -> None:
    """Raise unless ``regularizer`` can be called."""
    if not callable(regularizer):
        expected, got = "a callable of a weight", type(regularizer).__name__
        remedy = "pass a function that returns the penalty"
        text = sentence("mp_regularizer_wrapper: regularizer", expected, got, remedy)
        raise DtypeError(text)


def absent_half(name: str) -> UnsupportedError:
    """Strict: an absent gradient, which the original cannot cast to float32.

    # Quirk: docs/differences.md#masters-absent
    """
    expected = f"a gradient for the float16 variable {name!r}"
    remedy = "the original cannot leave it out; leave strict off"
    return UnsupportedError(sentence(WRAPPER, expected, "None", remedy))


def half_loss(dtype: str) -> DtypeError:
    """Strict: a half-precision loss, which an automatic float32 scale cannot multiply.

    # Quirk: docs/differences.md#masters-half-loss
    """
    remedy = "cast the loss to float32, or leave strict off"
    expected = "a float32 loss for an automatic scale"
    return DtypeError(sentence(WRAPPER, expected, dtype, remedy))


def halved_since(dtype: str, names: Sequence[str]) -> DtypeError:
    """Half-precision parameters without a master: they were not half at first."""
    shown = ", ".join(names[:AT_MOST]) + ", ..." * (len(names) > AT_MOST)
    expected, got = f"a float32 master for each {dtype} parameter", f"none for {shown}"
    remedy = "convert the model first, as model.half() does, and wrap it then"
    return DtypeError(sentence(WRAPPER, expected, got, remedy))


def widened_since(dtype: str, shape: Sequence[int]) -> DtypeError:
    """A parameter that has a master and is not in half precision any more."""
    expected = "parameters in half precision beside their float32 masters"
    remedy = "convert the model first and make the optimizer then"
    got = f"{dtype} for one of shape {list(shape)}"
    return DtypeError(sentence(WRAPPER, expected, got, remedy))


def built_already(name: str) -> UnsupportedError:
    """An optimizer that has its state for half-precision variables, not for masters."""
    expected = f"an optimizer that is not built yet, for the masters of {name!r}"
    remedy = "wrap the optimizer before it is built"
    return UnsupportedError(sentence(WRAPPER, expected, "one that is built", remedy))


def clips_outside(name: str) -> UnsupportedError:
    """Row clipping around the wrapper, of a variable that has a master.

    It would clip what the next step overwrites: the master keeps the longer rows.
    """
    subject = "VariableClippingOptimizer"
    expected = f"an optimizer that updates {name!r} itself"
    remedy = "put the row clipping inside of the masters' wrapper, with the same keys"
    got = f"{WRAPPER}, which updates its master"
    return UnsupportedError(sentence(subject, expected, got, remedy))


def masters_inside(owner: str) -> UnsupportedError:
    """A wrapper around masters, whose gradients are not there before their step."""
    expected = "an optimizer that updates the model's parameters itself"
    remedy = f"put the wrapper inside, as in {WRAPPER}({owner}(...))"
    got = f"{WRAPPER}, which updates masters"
    return UnsupportedError(sentence(owner, expected, got, remedy))


def automatic_on_device() -> UnsupportedError:
    """A step that never waits, under a scaler that counts in plain numbers."""
    expected = "a number, 'dynamic' or a loss scale for capturable=True"
    remedy = "the scaler's state is not on the device; leave capturable off"
    subject = f"{WRAPPER}: loss_scale"
    return UnsupportedError(sentence(subject, expected, "an automatic scaler", remedy))


def needs_as_module() -> UnsupportedError:
    """``torch.distributed.checkpoint`` with the model, which has no masters."""
    expected = "optimizer.as_module(model) for torch.distributed.checkpoint"
    got = "the model itself, which does not have the masters"
    remedy = "pass optimizer.as_module(model) with the optimizer"
    return UnsupportedError(sentence(WRAPPER, expected, got, remedy))


def own_gradient_changed(name: str) -> UnsupportedError:
    """A gradient of the model that was written into after it reached its master."""
    expected = "the model's gradients as they were at unscale_()"
    got = f"a changed one for {name!r}, which the step would not see"
    remedy = "change the gradients of master_params(), or call zero_grad() first"
    return UnsupportedError(sentence(f"{WRAPPER}.step", expected, got, remedy))


def scales_itself() -> UnsupportedError:
    """A ``GradScaler`` around a wrapper that scales the loss itself."""
    expected = "a loss multiplied by scale_loss(loss), and step()"
    remedy = "give the wrapper a loss scale, such as 'dynamic', and leave it out"
    return UnsupportedError(sentence(WRAPPER, expected, "a GradScaler", remedy))


def written_through_data(count: int) -> str:
    """Return the warning for weights that were changed without a trace."""
    expected = "weights to be written into under torch.no_grad()"
    got = f"{count} written through .data, which is looked for now and then only"
    remedy = (
        "the masters have taken the values over, those of other steps may be lost; "
        "write as in 'with torch.no_grad(): weight.clamp_(-1, 1)'"
    )
    return sentence(WRAPPER, expected, got, remedy)


def twice(shape: Sequence[int]) -> UnsupportedError:
    """A parameter that a new group holds, and another one too."""
    expected, remedy = "each parameter in one group", "leave it out of the new group"
    got = f"one of shape {list(shape)} in two"
    return UnsupportedError(sentence(WRAPPER, expected, got, remedy))


def without_masters(got: str) -> UnsupportedError:
    """A saved state that another kind of optimizer wrote."""
    expected = "a state with the masters of every half-precision parameter"
    remedy = "load the optimizer's state before it is wrapped, or save it again"
    return UnsupportedError(sentence(WRAPPER, expected, got, remedy))
