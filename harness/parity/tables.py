"""The tables that judge a case: tolerances, capabilities and listed differences.

Each TOML file of this folder has some. An entry concerns the cases and backends that
fit all of its selectors.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from harness.parity.cases import Case
from lockstep.optimizers import OPTIMIZERS

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry of a table: its selectors, and what holds for the cases that fit.

    Attributes:
        family, kind, optimizer: names, of which a case has one.
        backend: ``BACKEND`` or ``BACKEND:MODE``.
        given: inputs, of which a case has one.
        elements: the least size of the largest variable of a case.
        sparse: whether a gradient is sparse.
        raises: whether the original raised an error.
        arguments: of the optimizer, defaults included.
        reason: why the entry is there.
        ulp: the largest distance that passes. If ``carried``, it is in spacings of the
            quantity's largest value so far.
        size: the absolute difference up to which two values are equal.
        quantity: how the names of quantities begin that a backend lacks.
        anchor: the section of docs/differences.md in which a difference is listed.
        rule: a driver of ``drivers.framework_rules``, which gives what is right on a
            backend whose default is not the reference's.
        refuses: the error of ``lockstep.errors`` with which a backend refuses the case.
    """

    family: Sequence[str] = ()
    kind: Sequence[str] = ()
    optimizer: Sequence[str] = ()
    backend: Sequence[str] = ()
    given: Sequence[str] = ()
    elements: int = 0
    sparse: bool | None = None
    raises: bool | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    reason: str
    ulp: float = math.inf
    carried: bool = False
    size: float = 0.0
    quantity: str = ""
    anchor: str = ""
    rule: str = ""
    refuses: str = ""

    def concerns(self, case: Case, backend: str, mode: str = "") -> bool:
        """Whether a case on a backend fits every selector of this entry."""
        given = any(case.inputs.get(name) is not None for name in self.given)
        return (
            case.family in (self.family or [case.family])
            and case.kind in (self.kind or [case.kind])
            and case.optimizer in (self.optimizer or [case.optimizer])
            and not {backend, f"{backend}:{mode}"}.isdisjoint(self.backend or [backend])
            and (given or not self.given)
            and (self.elements == 0 or case.largest >= self.elements)
            and (self.sparse is None or case.sparse == self.sparse)
            and (self.raises is None or ("raises" in case.expected) == self.raises)
            and _has(case, self.arguments)
        )


def _has(case: Case, arguments: Mapping[str, Any]) -> bool:
    """Whether the optimizer of a case has these arguments, including defaults."""
    spec = OPTIMIZERS.get(case.optimizer)
    if spec is None or not arguments:
        return not arguments
    optimizer = case.inputs["optimizer"]
    if not isinstance(optimizer, Mapping):
        optimizer = {"args": case.inputs["optimizer_params"]}
    known = {parameter.name: parameter.default for parameter in spec.parameters}
    bound = {**known, **optimizer.get("args", {})}
    return all(bound[name] == value for name, value in arguments.items())


@cache
def read(file: str) -> Mapping[str, Sequence[Entry]]:
    """Read the tables of a file, by name."""
    content = tomllib.loads((FOLDER / file).read_text("utf-8"))
    return {
        table: [Entry(**entry) for entry in entries]
        for table, entries in content.items()
    }


EXACT = Entry(ulp=0, reason="nothing is rounded differently")


def tolerance(case: Case, backend: str, table: str = "tolerance") -> Entry:
    """Return the first entry that concerns a case on a backend, or ``EXACT``.

    ``table`` is ``tolerance`` (from the recording), ``rule`` (from a framework's own
    rule in NumPy), ``between_modes``, or ``floor``, whose entries have a ``size``.
    """
    entries = read("tolerances.toml")[table]
    return next((e for e in entries if e.concerns(case, backend)), EXACT)


def excuse(case: Case, backend: str, mode: str) -> str | None:
    """Return the reason why a backend cannot express a case, or None if it can."""
    entries = _excuses(case, backend, mode)
    return next((e.reason for e in entries if not e.quantity), None)


def excused_quantities(
    case: Case, backend: str, mode: str, by_rule: bool = False
) -> dict[str, str]:
    """Return the quantities of a case that a backend lacks, with the reasons.

    The keys are prefixes of names. All other quantities of the case are compared.
    ``by_rule``: with the optimizer's own rule, which has the slots that it has.
    """
    return {
        e.quantity: e.reason
        for e in _excuses(case, backend, mode)
        if e.quantity and not (by_rule and e.optimizer)
    }


def _excuses(case: Case, backend: str, mode: str) -> Iterator[Entry]:
    entries = read("capabilities.toml")["excuse"]
    return (e for e in entries if e.concerns(case, backend, mode))


def differences() -> Sequence[Entry]:
    """Return the listed differences, in the order in which they are looked up."""
    return read("differences.toml")["difference"]
