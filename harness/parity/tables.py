"""The tables that judge a case: tolerances, capabilities and listed differences."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from harness.parity.cases import Case
from lockstep.optimizers import OPTIMIZERS


@dataclass(frozen=True)
class Tolerance:
    """The largest distance that passes, and why it is not smaller.

    If ``carried``, it is in spacings of the quantity's largest value so far.
    """

    ulp: float
    reason: str
    carried: bool = False


EXACT = Tolerance(0, "nothing is rounded differently")


def tolerance(case: Case, backend: str, table: str = "tolerance") -> Tolerance:
    """Return the tolerance of a case on a backend: the first matching entry.

    ``table`` is ``tolerance`` (from the recording), ``rule`` (from a framework's own
    rule in NumPy) or ``between_modes``.
    """
    for entry in _entries(case, backend, table):
        return Tolerance(entry["ulp"], entry["reason"], entry.get("carried", False))
    return EXACT


def floor(case: Case, backend: str) -> float:
    """Return the absolute difference up to which two values of a case are equal."""
    return next((float(e["size"]) for e in _entries(case, backend, "floor")), 0.0)


def _entries(case: Case, backend: str, table: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of a table of tolerances whose selectors all match."""
    for entry in _table("tolerances.toml")[table]:
        given = entry.get("given")
        if (
            backend in entry.get("backend", (backend,))
            and _selected(case, entry)
            and (given is None or any(case.inputs.get(n) is not None for n in given))
            and case.largest >= entry.get("elements", 0)
            and entry.get("sparse", case.sparse) == case.sparse
        ):
            yield entry


def _selected(case: Case, entry: Mapping[str, Any]) -> bool:
    """Whether the family, kind and optimizer of a case are those of an entry."""
    facts = {"family": case.family, "kind": case.kind, "optimizer": case.optimizer}
    return all(facts[key] in entry[key] for key in facts if key in entry)


def excuse(case: Case, backend: str, mode: str) -> str | None:
    """Return the reason why a backend cannot express a case, or None if it can."""
    entries = _excuses(case, backend, mode)
    return next((str(e["reason"]) for e in entries if "quantity" not in e), None)


def excused_quantities(
    case: Case, backend: str, mode: str, by_rule: bool = False
) -> dict[str, str]:
    """Return the quantities of a case that a backend lacks, with the reasons.

    The keys are prefixes of names. All other quantities of the case are compared.
    ``by_rule``: with the optimizer's own rule, which has the slots that it has.
    """
    return {
        entry["quantity"]: str(entry["reason"])
        for entry in _excuses(case, backend, mode)
        if "quantity" in entry and not (by_rule and "optimizer" in entry)
    }


def _excuses(case: Case, backend: str, mode: str) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of the capability table whose selectors all match."""
    for entry in _table("capabilities.toml")["excuse"]:
        here = not {backend, f"{backend}:{mode}"}.isdisjoint(entry["backends"])
        if here and _selected(case, entry) and _has(case, entry.get("arguments", {})):
            yield entry


def _has(case: Case, arguments: Mapping[str, Any]) -> bool:
    """Whether the optimizer of a case has these arguments, including defaults."""
    if not arguments:
        return True
    spec = OPTIMIZERS.get(case.optimizer)
    if spec is None:
        return False
    optimizer = case.inputs["optimizer"]
    if not isinstance(optimizer, Mapping):
        optimizer = {"args": case.inputs["optimizer_params"]}
    known = {parameter.name: parameter.default for parameter in spec.parameters}
    bound = {**known, **optimizer.get("args", {})}
    return all(bound[name] == value for name, value in arguments.items())


@cache
def _table(name: str) -> Mapping[str, Any]:
    return tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))


class Difference(NamedTuple):
    """A kind of cases in which the default may differ: by ``ulp``, or in any way.

    ``rule`` names a function of ``drivers.framework_rules``, which gives what is right
    on a backend whose default is not the reference's, and ``refuses`` the error of
    ``lockstep.errors`` with which a backend, or ``BACKEND:MODE``, refuses the case.
    Without a ``family`` every trained case is concerned.
    """

    anchor: str
    reason: str
    family: str = ""
    kinds: Sequence[str] = ()
    optimizers: Sequence[str] = ()
    ulp: float = math.inf
    backends: Sequence[str] = ()
    rule: str = ""
    refuses: str = ""

    def concerns(self, case: Case, backend: str, mode: str = "") -> bool:
        """Whether this entry applies to ``case`` on ``backend``."""
        listed = case.family == self.family and case.kind in self.kinds
        listed = listed or not (self.family or "raises" in case.expected)
        places = {backend, f"{backend}:{mode}"}
        here = not self.backends or not places.isdisjoint(self.backends)
        named = not self.optimizers or case.optimizer in self.optimizers
        return listed and here and named


@cache
def differences() -> Sequence[Difference]:
    """Read ``differences.toml``."""
    return [Difference(**entry) for entry in _table("differences.toml")["difference"]]
