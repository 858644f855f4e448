"""Mutants of the reference: plausible mistakes that the recorded cases must catch.

A mutant replaces one name of the reference by something slightly wrong. If no case
fails on a mutant, the cases do not cover what it breaks. If a case fails on no mutant,
another mutant is needed. ``harness/parity/tests/test_mutants.py`` checks both. Every
module has a function ``mutants``, which returns its own.
"""

from __future__ import annotations

from harness.parity.tests.mutants import (
    agn,
    automatic_scaler,
    base_optimizers,
    gradients,
    masters,
    multitask,
    novograd,
    policies,
    rows,
    scales,
    step,
)
from harness.parity.tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: tuple[Mutant, ...] = (
    *multitask.mutants(),
    *rows.mutants(),
    *agn.mutants(),
    *scales.mutants(),
    *gradients.mutants(),
    *novograd.mutants(),
    *policies.mutants(),
    *automatic_scaler.mutants(),
    *masters.mutants(),
    *step.mutants(),
    *base_optimizers.mutants(),
)
