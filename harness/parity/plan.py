"""The plan of a replay: each case in one mode, a stratified tenth in others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from harness.parity.cases import Case
from harness.parity.row import Row
from harness.parity.tables import excuse
from lockstep.registry import Backend

__all__ = ["Plan", "plan_backend"]

Plan = Mapping[str, list[Case]]
"""Execution mode -> the cases to replay in it."""


def plan_backend(
    cases: Sequence[Case], backend: Backend, modes: Sequence[str], everything: bool
) -> tuple[Plan, list[Row]]:
    """Distribute ``cases`` over ``modes`` of a backend.

    The first mode that can express a case replays it. Every other mode that can
    replays a tenth of the cases of each kind (at least one), or all if ``everything``.
    Cases that no mode can express are returned as skipped rows with the reason.
    """
    plan: dict[str, list[Case]] = {mode: [] for mode in modes}
    skipped = []

    def able_modes(case: Case) -> list[str]:
        return [mode for mode in modes if not excuse(case, backend.name, mode)]

    def alike(case: Case) -> tuple[str, str, list[str]]:
        return case.family, case.kind, able_modes(case)

    for (_, _, able), group in groupby(sorted(cases, key=alike), key=alike):
        kind = list(group)
        if not able:
            skipped += [_skipped(case, backend.name, modes[0]) for case in kind]
        for position, mode in enumerate(able):
            whole = everything or position == 0
            plan[mode] += kind if whole else _tenth(kind, position)
    return plan, skipped


def _tenth(cases: Sequence[Case], offset: int) -> Iterable[Case]:
    """Return every tenth case from ``offset`` on, or the last if there are too few."""
    return cases[offset::10] or cases[-1:]


def _skipped(case: Case, backend: str, mode: str) -> Row:
    reason = excuse(case, backend, mode) or ""
    return Row(case.id, case.family, case.kind, backend, mode, "skipped", reason)
