"""Messages and checks of the multitask wrapper and its clipping function."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockstep.checks import check_norm_limit
from lockstep.errors import (
    DtypeError,
    NonFiniteNormError,
    NotAnOptimizerError,
    OutOfRangeError,
    Refusal,
    UnsupportedError,
)
from lockstep.interface import StepReport
from lockstep.messages.base import pipeline
from lockstep.messages.nouns import Nouns

__all__ = [
    "SCOPE",
    "check_clip_kind",
    "check_clip_norm",
    "not_an_optimizer",
    "refuse_mixed_dtypes",
    "refuse_sparse",
    "report",
    "report_through",
]

WRAPPER = "MultitaskOptimizerWrapper"
CLIP = "clip_gradients_by_global_norm"
SCOPE = "clip_by_global_norm"
"""The name scope of clipping in a TensorFlow graph."""


NESTED_UNDER_STRICT = Refusal(
    NotAnOptimizerError,
    "MultitaskOptimizerWrapper: expected a {nouns.optimizer}, "
    "got MultitaskOptimizerWrapper; "
    "the original refuses a wrapper; leave strict off to nest wrappers.",
)
SPARSE_GRADIENT = Refusal(
    UnsupportedError,
    "clip_gradients_by_global_norm: expected dense gradients, got a sparse one; "
    "the original cannot clip them; leave strict off.",
)
SEVERAL_DTYPES = Refusal(
    DtypeError,
    "clip_gradients_by_global_norm: expected gradients of one dtype, got {got}; "
    "the original cannot mix them; leave strict off.",
)
CLIP_NORM_IS_TEXT = Refusal(
    DtypeError,
    "clip_gradients_by_global_norm: clip_norm: expected a number or a 0-d tensor, "
    "got {got!r}; give the largest global norm that is to be left as it is.",
)
CLIP_NORM_IS_A_LIST = Refusal(
    OutOfRangeError,
    "clip_gradients_by_global_norm: clip_norm: expected a number or a 0-d tensor, "
    "got {got!r}; give the largest global norm that is to be left as it is.",
)
NONFINITE_NORM = Refusal(
    NonFiniteNormError,
    "clip_gradients_by_global_norm: expected a finite global norm, got {norm}; "
    "look for the gradient that overflowed, or leave error_if_nonfinite off.",
)


def not_an_optimizer(
    opt: object, nouns: Nouns, multitask_nesting: bool
) -> NotAnOptimizerError:
    """Build the error for an ``opt`` that cannot be wrapped."""
    if multitask_nesting and type(opt).__name__ == WRAPPER:
        return NESTED_UNDER_STRICT.error(nouns=nouns)
    return pipeline.not_an_optimizer(WRAPPER, opt, nouns)


def report_through(own: StepReport, inner: Any, names: Sequence[str]) -> StepReport:
    """Return the final report of a step, which a wrapped wrapper may have skipped.

    Args:
        own: the report from :func:`report`, before the wrapped optimizer was called.
        inner: the wrapped optimizer's ``last_step`` after the call; None without one.
        names: the names of all variables.
    """
    if inner is None or inner.applied:
        return own
    reason = f"{own.reason}; {inner.reason}"
    step_report: StepReport = inner._replace(reason=reason, skipped=tuple(names))
    return step_report


def report(
    names: Sequence[str], zero: Sequence[bool], absent: Sequence[bool]
) -> StepReport:
    """Return the report of a step: which variables were not updated, and why."""
    rows = list(zip(names, zero, absent, strict=True))
    skipped = tuple(name for name, is_zero, is_absent in rows if is_zero or is_absent)
    zeros, absents = sum(zero), sum(absent)
    applied = len(skipped) < len(rows)
    if not skipped:
        return StepReport(True, "every gradient had a nonzero element", ())
    parts = [f"{zeros} all zero"] * bool(zeros) + [f"{absents} absent"] * bool(absents)
    reason = f"of {len(rows)} gradients {' and '.join(parts)}"
    return StepReport(applied, reason, skipped)


def refuse_sparse(any_sparse: bool) -> None:
    """Strict: raise for sparse gradients, which the original could not clip.

    Quirk ``multitask_clip_sparse``.
    """
    if any_sparse:
        raise SPARSE_GRADIENT.error()


def refuse_mixed_dtypes(dtypes: Sequence[str]) -> None:
    """Strict: raise for gradients of several dtypes.

    Quirk ``multitask_clip_dtypes``.
    """
    if len(set(dtypes)) > 1:
        got = " and ".join(sorted(set(dtypes)))
        raise SEVERAL_DTYPES.error(got=got)


def check_clip_norm(clip_norm: Any) -> None:
    """Raise unless ``clip_norm`` is a positive number that float32 can divide by."""
    remedy = "give the largest global norm that is to be left as it is"
    check_norm_limit(CLIP, "clip_norm", clip_norm, remedy)


def check_clip_kind(clip_norm: Any) -> None:
    """Strict: raise for text and lists, the only limits that the original refuses."""
    if isinstance(clip_norm, str | bytes):
        raise CLIP_NORM_IS_TEXT.error(got=clip_norm)
    if clip_norm is None or isinstance(clip_norm, list | tuple):
        raise CLIP_NORM_IS_A_LIST.error(got=clip_norm)
