"""The words of the loss-scaling wrapper; those of the scales are at hand here too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

from lockstep.interface import StepReport
from lockstep.messages.errors import (
    DtypeError,
    MalformedPairsError,
    MissingLossScaleError,
    NotScalableError,
    OutOfRangeError,
    ScaleStalledError,
    UnscaledTwiceError,
    UnsupportedError,
    sentence,
)
from lockstep.messages.ranges import CHOOSE, check_norm_limit, require
from lockstep.messages.scaling.automatic_scaler import (
    ALGORITHMS,
    SCALER,
    BackoffPolicy,
    LogMaxPolicy,
    algorithm_name,
    automatic_policy,
    check_amax_dtype,
    check_check_grads_dtypes,
    check_state,
)
from lockstep.messages.scaling.loss_scale import (
    DynamicPolicy,
    bad_identifier,
    check_gradient_dtype,
    check_saved_scale,
    checked_config,
    dynamic_config,
    dynamic_policy,
    fixed_value,
    scale_argument,
    without_dense_shape,
)

__all__ = [
    "ALGORITHMS",
    "AT_FLOOR",
    "CLEAR",
    "PATIENCE",
    "SCALER",
    "SCALE_AGAIN",
    "WRAPPER",
    "BackoffPolicy",
    "DynamicPolicy",
    "LogMaxPolicy",
    "ScaledStepReport",
    "algorithm_name",
    "automatic_policy",
    "bad_identifier",
    "check_amax_dtype",
    "check_at_floor",
    "check_check_grads_dtypes",
    "check_clip_norm",
    "check_gradient_dtype",
    "check_saved_scale",
    "check_state",
    "checked_config",
    "dynamic_config",
    "dynamic_policy",
    "fixed_value",
    "half_precision",
    "later_gradient",
    "listed_gradients",
    "missing_loss_scale",
    "not_an_optimizer",
    "report",
    "scale_argument",
    "scaled_again",
    "scaled_in_function",
    "scaled_twice",
    "shared_scale",
    "stalled",
    "stalled_text",
    "unscaled_twice",
    "without_dense_shape",
]

WRAPPER = "MixedPrecisionLossScaleOptimizer"
AT_FLOOR = ("warn", "raise", "ignore")
CLEAR = "take the step first, or call zero_grad() to begin again"
SCALE_AGAIN = "take the step first, or call scale_loss(loss) to begin again"
PATIENCE = 100
"""So many skipped steps in a row, the scale at its floor, are a stall."""


class ScaledStepReport(StepReport):
    """A report that also says what was found in the gradients.

    Attributes:
        nonfinite: names of the variables whose gradients were not finite.
        norm: the global norm of the unscaled gradients, before they were clipped; None
            without ``clip_norm``, and where a gradient was not finite.
        clip_factor: what the gradients were multiplied by for ``clip_norm``, at most 1;
            None where ``norm`` is, and on a skipped step.
    """

    nonfinite: tuple[str, ...] = ()
    norm: float | None = None
    clip_factor: float | None = None

    @classmethod
    def of(
        cls,
        report: StepReport,
        nonfinite: Sequence[str],
        norm: float | None = None,
        clip_factor: float | None = None,
    ) -> ScaledStepReport:
        """Return ``report`` with these findings."""
        made = cls(*report)
        made.nonfinite = tuple(nonfinite)
        made.norm, made.clip_factor = norm, clip_factor
        return made

    def __repr__(self) -> str:
        """Show every field; a tuple's own repr leaves out the findings."""
        names = (*self._fields, "nonfinite", "norm", "clip_factor")
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__}({fields})"

    def _replace(self, **changes: Any) -> ScaledStepReport:
        """Return a changed copy that keeps the findings, as wrappers outside need."""
        made = super()._replace(**changes)
        return self.of(made, self.nonfinite, self.norm, self.clip_factor)


def missing_loss_scale() -> MissingLossScaleError:
    """Build the error for ``loss_scale=None``."""
    expected, remedy = "a loss scale", "give a number or 'dynamic'"
    return MissingLossScaleError(sentence(WRAPPER, expected, "None", remedy))


def not_an_optimizer(opt: object, expected: str) -> NotScalableError:
    """Build the error for an ``opt`` that cannot be wrapped."""
    got, remedy = type(opt).__name__, "pass the optimizer whose loss is to be scaled"
    if isinstance(opt, type):
        got, remedy = f"the class {opt.__name__}", "pass an instance"
    return NotScalableError(sentence(WRAPPER, f"a {expected}", got, remedy))


def scaled_twice(owner: str, got: str) -> UnsupportedError:
    """A scaling wrapper around another one: they would share one count."""
    expected = "an optimizer whose loss is not scaled yet"
    remedy = "let one of the two scale, and give it the loss scale"
    return UnsupportedError(sentence(owner, expected, got, remedy))


def shared_scale(owner: str, scale: str) -> UnsupportedError:
    """A loss scale that counts the steps of another optimizer already."""
    expected = "a loss scale of its own"
    got = f"a {scale} that counts for another optimizer"
    remedy = "make one for each, as with copy.deepcopy"
    return UnsupportedError(sentence(f"{owner}: loss_scale", expected, got, remedy))


def unscaled_twice(owner: str, remedy: str) -> UnscaledTwiceError:
    """Build the error for a second unscaling by hand before the step."""
    expected = "one unscaling of the gradients before each step"
    return UnscaledTwiceError(sentence(owner, expected, "a second one", remedy))


def listed_gradients(
    gradients: Any, owner: str, is_tensor: bool
) -> list[tuple[int, Any]]:
    """Return gradients that are to be unscaled, numbered; raise unless it is a list."""
    if is_tensor or not isinstance(gradients, Iterable):
        expected, got = "a list of gradients", type(gradients).__name__
        remedy = "pass what the tape returned for a list of variables"
        text = sentence(f"{owner}.unscale_gradients", expected, got, remedy)
        raise MalformedPairsError(text)
    listed = list(gradients)
    if any(type(gradient) is tuple for gradient in listed):
        remedy = "pass the gradients alone, without their variables"
        text = sentence(f"{owner}.unscale_gradients", "gradients", "a tuple", remedy)
        raise MalformedPairsError(text)
    return list(enumerate(listed))


def scaled_in_function(owner: str) -> UnsupportedError:
    """Gradients of a loss that a ``tf.function`` scaled, in an eager step."""
    expected = "unscaled gradients, for a tf.function scaled the loss"
    got = "gradients that were not unscaled"
    remedy = "pass them through unscale_gradients first"
    text = sentence(f"{owner}.apply_gradients", expected, got, remedy)
    return UnsupportedError(text)


def later_gradient(owner: str, name: str) -> UnsupportedError:
    """A gradient that was not there yet when ``unscale_`` was called."""
    expected = "every gradient to be there at unscale_()"
    got = f"a later one for {name!r}, which may hold the loss scale"
    remedy = "call unscale_() after the last backward, or zero_grad() to begin again"
    return UnsupportedError(sentence(f"{owner}.step", expected, got, remedy))


def scaled_again(owner: str) -> UnscaledTwiceError:
    """Build the error for a loss whose gradients would be added to unscaled ones."""
    expected = "no further loss between unscale_() and step()"
    got = "one whose scaled gradients would be added to unscaled ones"
    remedy = "call unscale_() after the last backward, or zero_grad() to begin again"
    return UnscaledTwiceError(sentence(f"{owner}.scale_loss", expected, got, remedy))


def check_at_floor(at_floor: Any, floor_patience: Any, owner: str = WRAPPER) -> None:
    """Raise unless both arguments of the wrapper ``owner`` are admissible."""
    if at_floor not in AT_FLOOR:
        expected = " or ".join(map(repr, AT_FLOOR))
        remedy = "say what a stalled run is to do"
        text = sentence(f"{owner}: at_floor", expected, repr(at_floor), remedy)
        raise OutOfRangeError(text)
    fine = isinstance(floor_patience, int) and floor_patience >= 1
    require(owner, "floor_patience", floor_patience, fine, "an int >= 1")


def check_clip_norm(clip_norm: Any, strict: bool, owner: str = WRAPPER) -> None:
    """Raise unless ``clip_norm`` of ``owner`` is None or a norm to clip to."""
    if clip_norm is None:
        return
    if strict:
        remedy = "the original does not clip; leave strict off"
        expected, got = "no clip_norm under strict", repr(clip_norm)
        raise UnsupportedError(sentence(owner, expected, got, remedy))
    remedy = f"{CHOOSE}, or leave it out"
    number = isinstance(clip_norm, Real)
    require(owner, "clip_norm", clip_norm, number, "a finite number > 0")
    check_norm_limit(owner, "clip_norm", clip_norm, remedy)


def half_precision(what: str) -> DtypeError:
    """Strict: a float16 loss or variable, which a float32 scale cannot multiply.

    # Quirk: docs/differences.md#loss-scale-float16
    """
    remedy = "the original cannot scale it; leave strict off"
    return DtypeError(sentence(WRAPPER, "float32", f"{what} in float16", remedy))


def report(
    inner: StepReport | None,
    names: Sequence[str],
    nonfinite: Sequence[str],
    scales: tuple[float, float],
    applied: bool | None = None,
    norm: float | None = None,
    clip_factor: float | None = None,
) -> ScaledStepReport:
    """Say whether a step was applied, which tensors were not finite, and the scale.

    Args:
        inner: the ``last_step`` of the wrapped optimizer if it was called and has one.
        names: of all variables of the step.
        nonfinite: names of those whose gradients were not finite.
        scales: the loss scale before and after the step.
        applied: None: if no gradient was non-finite. Given where these are applied all
            the same (strict, fixed), or where only their norm was not finite.
        norm: the global norm if it was taken.
        clip_factor: what clipping multiplied by, on a step that was applied.
    """
    endings = [moved("loss scale", *scales)]
    applied = not nonfinite if applied is None else applied
    if norm is not None and clip_factor is not None:
        endings.append(moved("norm", norm, norm * clip_factor))
    ending = "; ".join(endings)
    if not applied:
        reason = f"skipped, not finite: {named(nonfinite)}; {ending}"
        step = StepReport(False, reason, tuple(names))
    elif inner is not None:
        step = StepReport(*inner)._replace(reason=f"{inner.reason}; {ending}")
    else:
        found = f"applied, not finite: {named(nonfinite)}" if nonfinite else "finite"
        step = StepReport(True, f"{found}; {ending}", ())
    return ScaledStepReport.of(step, nonfinite, norm, clip_factor)


def moved(what: str, before: float, after: float) -> str:
    """Return ``what`` with its value, or with both where they differ."""
    first, second = f"{before:g}", f"{after:g}"
    return f"{what} {first}" + (f" -> {second}" if first != second else "")


def named(nonfinite: Sequence[str]) -> str:
    """Return the names; where every gradient was finite, it was their norm."""
    return ", ".join(nonfinite) or "the norm of all gradients"


def stalled(
    skips: int, scale: float, nonfinite: Sequence[str], owner: str = WRAPPER
) -> ScaleStalledError:
    """Build the error, or the warning, for a run that skips every step at the floor."""
    values = str(skips), f"{scale:g}", named(nonfinite)
    return ScaleStalledError(stalled_text(*values, owner))


def stalled_text(skips: str, scale: str, names: str, owner: str = WRAPPER) -> str:
    """Return the sentence of :func:`stalled`; a graph fills in its own values."""
    return sentence(
        owner,
        "a finite step now and then",
        f"{skips} skipped in a row at loss scale {scale}, not finite: {names}",
        "look at these gradients, or lower the floor",
    )
