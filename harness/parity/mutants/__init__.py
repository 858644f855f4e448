"""Mutants of the reference: plausible mistakes that the recorded cases must catch.

A mutant replaces one name of the reference by something slightly wrong. If no case
fails on a mutant, the cases do not cover what it breaks. If a case fails on no mutant,
another mutant is needed. ``harness/parity/tests/test_mutants.py`` checks both. Every
module of this folder has a function ``mutants``, which returns its own.
"""

from __future__ import annotations

from harness.discovery import modules_in
from harness.parity.mutant import Mutant

__all__ = ["MUTANTS"]

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant for module in modules_in(__name__) for mutant in module.mutants()
)
