"""Accumulated gradient normalization: names, checks and messages."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

from lockstep.errors import (
    unknown_name,
)
from lockstep.interface import StepReport
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.nouns import Nouns
from lockstep.messages.workers import refusals
from lockstep.pipeline import has_layer, stages_of

__all__ = [
    "COMMITS",
    "DELTA",
    "GLOBAL_VARIABLE_NAME",
    "GRADIENT",
    "GRAD_VARIABLE_NAME",
    "WRAPPER",
    "check_arguments",
    "check_optimizer",
    "refuse_iterator",
    "refuse_masters_around",
    "refuse_row_clipping_around",
    "report",
]

WRAPPER, GETTER = "AGNOptimizer", "AGNCustomGetter"
MASTERS, ROW_CLIPPING = "MixedPrecisionOptimizerWrapper", "VariableClippingOptimizer"
WITHOUT_MASTERS = (
    f"{WRAPPER} shares what it trains: let that be float32, with "
    f"MixedPrecisionLossScaleOptimizer around {WRAPPER} if the loss is to be scaled"
)

GLOBAL_VARIABLE_NAME = "global_center_variable"
"""The prefix of a shared variable's name, before the worker's variable name."""

GRAD_VARIABLE_NAME = "grad_variable"
"""The prefix of an accumulator's name, before the variable's name."""

GRADIENT, DELTA = "gradient", "delta"
COMMITS = (GRADIENT, DELTA)
"""Kinds of pushes: a worker's mean gradient, or its mean change of weights."""


def check_optimizer(opt: object, kind: type, nouns: Nouns) -> None:
    """Raise unless ``opt`` has the class ``kind`` and can be used by a worker.

    Raises:
        NotAnOptimizerError: ``opt`` is no optimizer of the backend of ``nouns``.
        UnsupportedError: it scales losses, so that its gradients cannot be accumulated,
            or it trains masters, or it shares weights itself.
    """
    if not isinstance(opt, kind):
        raise not_an_optimizer(WRAPPER, opt, nouns)
    if has_layer(opt, MASTERS):
        raise refusals.MASTERS_INSIDE.error()
    if "unscale" in stages_of(opt) or getattr(opt, "loss_scale", None) is not None:
        raise refusals.SCALE_INSIDE.error(got=type(opt).__name__)
    if has_layer(opt, WRAPPER):
        raise refusals.SHARED_ALREADY.error()


def refuse_masters_around(opt: object) -> None:
    """Raise if AGN is inside a wrapper with masters: AGN shares the variables."""
    if has_layer(opt, WRAPPER):
        raise refusals.MASTERS_AROUND.error()


def refuse_row_clipping_around(opt: object) -> None:
    """Raise if AGN is inside row clipping, which would not clip the shared weights."""
    if has_layer(opt, WRAPPER):
        raise refusals.ROW_CLIPPING_AROUND.error()


def check_arguments(
    num_worker: Any, communication_period: Any, commit: str, agn_workers: bool
) -> None:
    """Raise for invalid arguments; strict checks only ``commit``.

    Raises:
        OutOfRangeError: a count or period is no integer >= 1.
        UnknownNameError: ``commit`` is none of :data:`COMMITS`.
        UnsupportedError: strict: ``commit`` is not that of the original.
    """
    if commit not in COMMITS:
        raise unknown_name(f"{WRAPPER}: commit", commit, COMMITS)
    if agn_workers:
        if commit != GRADIENT:
            remedy = "the original has no other; leave strict off"
            raise refusals.COMMIT_UNDER_STRICT.error(got=commit)
        return
    remedy = "give the number of workers; it changes no result"
    _require_count("num_worker", num_worker, remedy)
    remedy = "give the number of local steps between two pushes"
    _require_count("communication_period", communication_period, remedy)


def _require_count(name: str, value: Any, remedy: str, least: int = 1) -> None:
    try:
        fine = operator.index(value) >= least and not isinstance(value, bool)
    except TypeError:
        fine = False
    if not fine:
        raise refusals.NOT_A_COUNT.error(
            name=name, least=least, got=value, remedy=remedy
        )


def refuse_iterator(grads_and_vars: object, agn_iterator: bool) -> None:
    """Strict: raise for pairs that can be read only once, as the original does."""
    if agn_iterator and isinstance(grads_and_vars, Iterator):
        raise refusals.ITERATOR_UNDER_STRICT.error(got=type(grads_and_vars).__name__)


def report(
    inner: StepReport | None,
    names: Sequence[str],
    absent: Sequence[bool],
    local_step: int,
    period: int,
) -> StepReport:
    """Return the report of a local step: what was updated, and if the round ended.

    ``inner`` is the ``last_step`` of the wrapped optimizer after its local step, which
    is more precise about updates; None if there is none.
    """
    left = -local_step % period
    ending = f"local step {local_step}, " + (
        f"{left} more before the push" if left else "pushed and pulled"
    )
    if inner is not None:
        return inner._replace(reason=f"{inner.reason}; {ending}")
    pairs = zip(names, absent, strict=True)
    skipped = tuple(name for name, is_absent in pairs if is_absent)
    updated = f"of {len(names)} gradients {len(skipped)} absent"
    if not skipped:
        updated = "every gradient was present"
    applied = len(skipped) < len(names)
    return StepReport(applied, f"{updated}; {ending}", skipped)
