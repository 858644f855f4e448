"""Can the recorded cases fail? A mistake in the reference fails some of its family."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest

from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.replay import replay

Change = Callable[[Any], Any]


def constant(value: Any) -> Change:
    """Replace a function by one that always returns ``value``."""
    return lambda right: lambda *arguments, **options: value


def one_percent_more(right: Any) -> Any:
    """Multiply the result of a function, or its first part, by 1.01."""

    def wrong(*arguments: Any, **options: Any) -> Any:
        return more(right(*arguments, **options))

    return wrong


def more(result: Any) -> Any:
    if isinstance(result, list):
        return [more(entry) for entry in result]
    if isinstance(result, tuple) and hasattr(result, "_replace"):
        name = "values" if hasattr(result, "values") else "loss_scale"
        return result._replace(**{name: more(getattr(result, name))})
    if isinstance(result, tuple):
        return more(result[0]), *result[1:]
    if result is None:
        return None
    array = np.asarray(result)
    return np.asarray(array * array.dtype.type(1.01))


def unchanged(right: Any) -> Any:
    """Return the first argument instead of the result."""
    return lambda first, *rest, **options: first


BASE = "base_optimizers"
RULES = ("GradientDescent", "Momentum", "Adam", "AdamW", "Adagrad", "RMSProp", "Ftrl")
MUTANTS: list[tuple[str, Change, str]] = [
    ("multitask.is_all_zero", constant(False), "multitask"),
    ("multitask.is_all_zero", constant(True), "multitask"),
    ("arrays.flush_subnormals", unchanged, "multitask"),
    ("optimizers.RuleOptimizer.advance_shared", constant(None), "multitask"),
    ("multitask.clipped_in", one_percent_more, "multitask_clip"),
    ("clipping.clip_scale", one_percent_more, "multitask_clip"),
    ("clipping.global_norm", one_percent_more, "multitask_clip"),
    ("clipping.clip_scale", one_percent_more, "clip_by_global_norm"),
    ("clipping.norm_of_pairs", one_percent_more, "clip_by_global_norm"),
    ("clipping.require_present", constant(None), "larc"),
    ("post_process.raw_ratio", one_percent_more, "larc"),
    ("post_process.tensor_norm", one_percent_more, "larc"),
    ("post_process.apply_larc", constant([]), "larc"),
    ("variable_clipping.excess", one_percent_more, "variable_clipping"),
    ("variable_clipping.strict_norms", one_percent_more, "variable_clipping"),
    ("variable_clipping.subtract_rows", unchanged, "variable_clipping"),
    ("variable_clipping.flush_subnormals", unchanged, "variable_clipping"),
    ("arrays.advance", constant(None), "variable_clipping"),
    *[
        (f"optimizers.{name}Optimizer.{rule}", one_percent_more, BASE)
        for name in RULES
        for rule in ("rule", "rule_of_rows")
    ],
    ("optimizers.RuleOptimizer.advance_shared", constant(None), BASE),
    ("optimizers.sum_duplicates", unchanged, BASE),
    ("novograd.square_norm", one_percent_more, "novograd"),
    ("novograd.normalized", one_percent_more, "novograd"),
    ("novograd.densify", one_percent_more, "novograd"),
    ("loss_scaling.times", one_percent_more, "loss_scale_fixed"),
    ("loss_scaling.times", one_percent_more, "loss_scale_dynamic"),
    ("loss_scaling.is_finite", constant(True), "loss_scale_dynamic"),
    ("loss_scaling.is_finite", constant(False), "loss_scale_dynamic"),
    ("loss_scaling.scalers.step_dynamic", one_percent_more, "loss_scale_dynamic"),
    (
        "loss_scaling.scalers.step_automatic",
        one_percent_more,
        "auto_loss_scaler_backoff",
    ),
    (
        "loss_scaling.scalers.step_automatic",
        one_percent_more,
        "auto_loss_scaler_logmax",
    ),
    ("mixed_precision.times", one_percent_more, "mixed_precision_wrapper"),
    ("mixed_precision.cast", unchanged, "mixed_precision_wrapper"),
    ("mixed_precision.add_penalty", unchanged, "mixed_precision_wrapper"),
    ("strict.get_regularization_loss", one_percent_more, "regularization_loss"),
    ("agn.arrays.densify", one_percent_more, "agn"),
    ("agn.Center.push", constant(None), "agn"),
    ("agn.AGNOptimizer.push", constant(None), "agn"),
    ("agn.AGNOptimizer.begin_round", constant(None), "agn"),
    ("optimize_loss.add_share", one_percent_more, "optimize_loss"),
    ("optimize_loss.post_process.post_process_gradients", unchanged, "optimize_loss"),
    ("optimize_loss.TrainingStep.waits", constant(False), "optimize_loss"),
    ("optimize_loss.TrainingStep.clear", constant(None), "optimize_loss"),
    ("optimize_loss.TrainingStep.decay", one_percent_more, "optimize_loss"),
]
"""What is replaced below ``lockstep.reference``, how, and the family that notices."""


def is_noticed(case: Case) -> bool:
    return replay(case, drivers.load("reference"))[0].status == "failed"


# The slow tests try them all.
@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(m, id=f"{m[0]}-{k}", marks=[pytest.mark.slow] * (k % 8 > 0))
        for k, m in enumerate(MUTANTS)
    ],
)
def test_a_recorded_case_notices_a_mistake(mutant: tuple[str, Change, str]) -> None:
    target, change, family = mutant
    path, _, name = target.rpartition(".")
    owner = pkgutil.resolve_name(f"lockstep.reference.{path}")
    wrong = change(getattr(owner, name))
    is_static = isinstance(vars(owner)[name], staticmethod)
    with mock.patch.object(owner, name, staticmethod(wrong) if is_static else wrong):
        cases = [*read_cases(GOLDEN, [family]), *read_cases(FOUND, [family])]
        assert any(map(is_noticed, cases))
