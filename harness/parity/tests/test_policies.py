"""The default policies differ from strict ones only where SEMANTICS says so."""

from __future__ import annotations

import pytest

from harness.parity import drivers
from harness.parity.cases import GOLDEN, Case, read_cases
from harness.parity.replay import replay

DIFFERENT = ("cosine_decay", "inv_poly_decay", "transformer_policy_float16_max")
"""The beginnings of the kinds that show a quirk which the default does not have."""

CASES = read_cases(GOLDEN, ["lr_policies"])


@pytest.mark.parametrize(
    "case", [c for c in CASES if not c.kind.startswith(DIFFERENT)], ids=lambda c: c.id
)
def test_the_default_is_strict_to_the_bit(case: Case) -> None:
    row = replay(case, drivers.load("reference", strict=False))
    assert (row.status, row.max_ulp or 0.0) == ("passed", 0.0), row.reason


def test_the_kinds_of_quirks_are_different_by_default() -> None:
    driver = drivers.load("reference", strict=False)
    changed = {c.kind for c in CASES if replay(c, driver).status == "failed"}
    assert changed
    assert all(kind.startswith(DIFFERENT) for kind in changed)
