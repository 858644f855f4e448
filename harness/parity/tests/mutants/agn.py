"""Mutants of AGN."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from harness.parity.tests.mutants.mutant import (
    Mutant,
    after,
    before,
    constant,
    instead,
    of_class,
    one_percent_more,
)
from lockstep.interface import Array, Rows

__all__ = ["mutants"]


def latest_only(accumulators: Any, changes: Any) -> list[Array]:
    """Return the changes alone, without what the accumulators hold."""
    from lockstep.reference.workers.accumulate import densify

    return [densify(c, a) for a, c in zip(accumulators, changes, strict=True)]


def duplicates_overwrite(change: Any, accumulator: Array) -> Array:
    """Return a change as a dense array in which the last duplicate row wins."""
    if not isinstance(change, Rows):
        return np.asarray(change)
    dense = np.zeros_like(accumulator)
    dense[change.indices] = change.values
    return dense


def each_one_percent_more(arrays: list[Array]) -> list[Array]:
    """Return each array times 1.01, in its dtype."""
    return [one_percent_more(array) for array in arrays]


def nothing_pulled(method: Any) -> Any:
    """Make ``begin_round`` leave the variables of the worker as they are."""

    def begin_round(self: Any, variables: Any) -> None:
        before = [(variable, variable.value) for variable in variables]
        method(self, [variable for variable, _ in before])
        for variable, value in before:
            variable.value = value

    return begin_round


def still_gathered(method: Any) -> Any:
    """Make ``begin_round`` leave the accumulators as they are."""

    def begin_round(self: Any, variables: Any) -> None:
        before = [(a, a.value) for a in self.accumulators(variables)]
        method(self, variables)
        for accumulator, value in before:
            accumulator.value = value

    return begin_round


def slots_forgotten(method: Any) -> Any:
    """Make ``begin_round`` delete the slots of the worker's variables."""

    def begin_round(self: Any, variables: Any) -> None:
        from lockstep.reference.optimizers.classes import base_of

        method(self, variables)
        for variable in variables:
            base_of(self).slots.pop(variable, None)

    return begin_round


def before_the_local_step(method: Any) -> Any:
    """Make the step that ends a round push and pull before its local update, too."""

    def apply(self: Any, pairs: Any, global_step: Any = None, name: Any = None) -> None:
        period = self.communication_period
        if self.local_step.value % period == period - 1:
            present = [variable for gradient, variable in pairs if gradient is not None]
            self.communicate(present)
        method(self, pairs, global_step, name)

    return apply


def powers_of_their_own(method: Any) -> Any:
    """Make ``push`` restore the powers of beta, which the update advanced."""

    def push(self: Any, update: Any) -> None:
        from lockstep.reference.optimizers.classes import base_of

        base = base_of(update.optimizer)
        shared = dict(base.shared)
        method(self, update)
        base.shared = shared

    return push


def slots_not_kept(method: Any) -> Any:
    """Make ``push`` delete the slots of the shared variables."""

    def push(self: Any, update: Any) -> None:
        method(self, update)
        self.slots.clear()

    return push


def signs_only(method: Any) -> Any:
    """Make ``push`` apply the signs of the changes."""

    def push(self: Any, update: Any) -> None:
        signs = {name: np.sign(change) for name, change in update.changes.items()}
        method(self, update._replace(changes=signs))

    return push


def counted_each_step(method: Any) -> Any:
    """Make every local step advance the global step."""

    def apply(self: Any, pairs: Any, global_step: Any = None, name: Any = None) -> None:
        from lockstep.reference.base.pairs import advance

        method(self, pairs, None, name)
        advance(global_step)

    return apply


def rounds_not_counted(counter: Any) -> None:
    """Advance a counter only if it is the local step."""
    if counter is not None and counter.name == "local_step":
        counter.value = counter.value + counter.dtype.type(1)


def local_steps_not_counted(advance: Any) -> Any:
    """Make ``advance`` skip the local step."""

    def unless_local(counter: Any) -> None:
        if counter is None or counter.name != "local_step":
            advance(counter)

    return unless_local


def not_shared(method: Any) -> Any:
    """Make ``join`` create a new shared variable for each worker."""

    def join(self: Any, variable: Any) -> Any:
        self.variables.pop(variable.name, None)
        return method(self, variable)

    return join


def delta(optimizer: Any) -> Any:
    """Return the AGN optimizer that pushes differences of weights."""
    from lockstep import reference

    return partial(reference.AGNOptimizer, commit="delta")


AGN = ("agn",)


def mutants() -> Sequence[Mutant]:
    """Return the mutants of accumulated gradient normalization."""
    return (*_accumulation_mutants(), *_round_mutants())


def _accumulation_mutants() -> Sequence[Mutant]:
    """Return the mutants of accumulation, and of the time of a push."""
    gathered, mean, due = (
        "workers.agn.add_changes",
        "workers.agn.mean_changes",
        "workers.agn.is_due",
    )
    nothing = instead(lambda accumulators, changes: list(accumulators))
    undivided = instead(lambda accumulators, period: list(accumulators))
    late = before(lambda step, period: (step - 1, period))
    densify, largest = "workers.accumulate.densify", after(each_one_percent_more)
    return (
        Mutant(gathered, "nothing is gathered", nothing, AGN),
        Mutant(gathered, "the last gradient only", instead(latest_only), AGN),
        Mutant(densify, "duplicates overwrite", instead(duplicates_overwrite), AGN),
        Mutant(mean, "the sum", undivided, AGN),
        Mutant(mean, "1 % too large", largest, AGN),
        Mutant(due, "at every step", constant(True), AGN),
        Mutant(due, "never", constant(False), AGN),
        Mutant(due, "a step late", late, AGN),
    )


def _round_mutants() -> Sequence[Mutant]:
    """Return the mutants of a round at the center, and of the errors."""
    from lockstep import reference

    default = instead(reference.AGNOptimizer)
    optimizer, center = "workers.agn.AGNOptimizer", "workers.center.Center"
    begin, apply = f"{optimizer}.begin_round", f"{optimizer}.apply_gradients"
    strict = "strict.AGNOptimizer"
    require = "base.pairs.require_gradients"
    rows, wrong = "workers.agn.refusals", of_class(ArithmeticError)
    return (
        Mutant(begin, "shared weights are not pulled", nothing_pulled, AGN),
        Mutant(begin, "accumulators are not reset", still_gathered, AGN),
        Mutant(begin, "slots are reset", slots_forgotten, AGN),
        Mutant(apply, "pushed before the local step", before_the_local_step, AGN),
        Mutant(apply, "every local step is a round", counted_each_step, AGN),
        Mutant(
            "workers.agn.advance", "rounds uncounted", instead(rounds_not_counted), AGN
        ),
        Mutant("workers.agn.advance", "steps uncounted", local_steps_not_counted, AGN),
        Mutant(f"{center}.push", "powers advance once", powers_of_their_own, AGN),
        Mutant(f"{center}.push", "no slots at the center", slots_not_kept, AGN),
        Mutant(f"{center}.push", "signs only", signs_only, AGN),
        Mutant(f"{center}.join", "each worker its own center", not_shared, AGN),
        Mutant(strict, "pushes differences", delta, AGN),
        Mutant(strict, "not strict", default, AGN),
        Mutant(
            "workers.center.GRAD_VARIABLE_NAME", "another name", instead("sum"), AGN
        ),
        Mutant(f"{rows}.NOT_FROM_GETTER", "another class", wrong, AGN),
        Mutant(f"{rows}.NOTHING_TO_START", "another class", wrong, AGN),
        Mutant(require, "absent ones will do", constant(None), AGN),
    )
