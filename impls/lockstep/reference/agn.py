"""Accumulated gradient normalization for asynchronous workers, over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from lockstep import errors
from lockstep.checks import check_integer
from lockstep.interface import Array, Gradient, Rows
from lockstep.pipeline import base_of, has_layer, stages_of
from lockstep.reference import arrays
from lockstep.reference.arrays import Pairs, Variable
from lockstep.reference.optimizers import Optimizer, Slots, Wrapper
from lockstep.reference.variable_clipping import share_row_axes

OWNER, GETTER = "AGNOptimizer", "AGNCustomGetter"

GLOBAL_VARIABLE_NAME = "global_center_variable"
"""The prefix of a shared variable's name, before the worker's variable name."""
GRAD_VARIABLE_NAME = "grad_variable"
"""The prefix of an accumulator's name, before the variable's name."""


# -- the center ------------------------------------------------------------------------


class Center:
    """Shared variables by the names of the workers' variables, and their slots.

    The optimizer of the worker that pushes applies the update, with its own learning
    rate and powers of beta. During the update it uses the shared variables' slots.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.slots: dict[Variable, Slots] = {}

    def join(self, name: str, variable: Variable) -> Variable:
        """Return the shared variable ``name``; the first worker's value is copied."""
        if name not in self.variables:
            full = f"{GLOBAL_VARIABLE_NAME}/{name}"
            self.variables[name] = Variable(full, variable.value)
        return self.variables[name]

    def push(self, changes: Mapping[str, Array], optimizer: Any = None) -> None:
        """Apply mean gradients with the worker's optimizer, or add changes without."""
        pairs = [(change, self.variables[name]) for name, change in changes.items()]
        if optimizer is None:
            for change, variable in pairs:
                variable.value = np.asarray(variable.value + change)
            return
        base = base_of(optimizer)
        base.slots.update(self.slots)
        optimizer.apply_gradients(pairs)
        for _, variable in pairs:
            if variable in base.slots:
                self.slots[variable] = base.slots.pop(variable)

    def slot(self, variable: Variable, name: str) -> Array | None:
        """Return a slot of a shared variable; None before its first push."""
        return self.slots.get(variable, {}).get(name)


class AGNCustomGetter:
    """Make the shared variable and the accumulator of each of a worker's variables.

    NumPy has no variable scopes, so the getter is called with the worker's trainable
    variables instead. Workers share one center, in one process.

    Args:
        worker_device: as in TensorFlow; without effect.
        center: the :class:`Center` of the other workers, their getter's ``center``;
            None creates one.
        strict: as ``tf.contrib.opt.AGNCustomGetter`` (1.15): an accumulator holds the
            variable's value until the init op has run.

    Attributes:
        center: the weights that the workers share.

    Example:
        >>> first = AGNCustomGetter("/cpu:0")
        >>> (w,) = first([Variable("w", [1.0])])
        >>> second = AGNCustomGetter("/cpu:0", center=first.center)
        >>> (own_w,) = second([Variable("w", [7.0])])
        >>> second._global_map[own_w] is first._global_map[w]
        True
    """

    def __init__(
        self, worker_device: Any, center: Center | None = None, strict: bool = False
    ) -> None:
        self.center = center or Center()
        self.strict = strict
        self._global_map: dict[Variable, Variable] = {}
        self._grad_map: dict[Variable, Variable] = {}

    def __call__(self, variables: Iterable[Variable]) -> list[Variable]:
        """Register trainable variables, which have different names; return them."""
        entered = list(variables)
        for variable in entered:
            if variable in self._global_map:
                continue
            name = variable.name
            start = variable.value
            if not self.strict:  # agn-accumulator-start
                start = np.zeros_like(start)
            self._global_map[variable] = self.center.join(name, variable)
            self._grad_map[variable] = Variable(f"{GRAD_VARIABLE_NAME}/{name}", start)
        return entered


# -- the worker ------------------------------------------------------------------------


class AGNOptimizer(Wrapper):
    """Train a worker's own weights; every P steps push a mean gradient to shared ones.

    With P = ``communication_period``, g a gradient at the worker's weights w, a the
    accumulator of w and c the shared weights, for each variable with a gradient:

    1. ``optimizer`` applies g to w;
    2. a = a + g;
    3. local_step = local_step + 1, once a call;
    4. if local_step is a multiple of P: a = a / P; the same optimizer applies a to c,
       with slots that belong to c and powers of beta that belong to the worker; then
       global_step = global_step + 1, w = c, a = 0. The slots of w stay.

    With ``commit="delta"``, as in the paper, step 2 adds to a the change that step 1
    made to w, and step 4 is c = c + a / P. A variable whose gradient is absent in the
    call that ends a round is neither pushed nor pulled.

    Args:
        optimizer: any optimizer of the reference that this worker uses.
        num_worker: the number of workers, >= 1; it changes no result.
        custom_getter: the :class:`AGNCustomGetter` that made the shared variables.
        communication_period: P: local steps between two pushes, >= 1.
        use_locking, name: as in TensorFlow; without effect.
        commit: ``"gradient"`` or ``"delta"``.
        strict: reproduce ``tf.contrib.opt.AGNOptimizer`` (1.15) with its quirks: pairs
            from a one-shot iterator are refused, arguments are not checked, row
            clipping inside does not clip shared rows.

    Raises:
        ValueError: a period or count below 1, an ``optimizer`` that scales losses.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNOptimizer``; J. Hermans, G. Spanakis,
    R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368).
    """

    def __init__(
        self,
        optimizer: Optimizer,
        num_worker: int,
        custom_getter: AGNCustomGetter,
        communication_period: int = 10,
        use_locking: bool = True,
        name: str = "AGNOptimizer",
        commit: str = "gradient",
        strict: bool = False,
    ) -> None:
        if has_layer(optimizer, OWNER) or "unscale" in stages_of(optimizer):
            raise errors.UnsupportedError(
                f"{OWNER}: expected an optimizer of unscaled gradients and a worker's "
                f"own float32 variables, got {type(optimizer).__name__}; wrap "
                "AGNOptimizer in MixedPrecisionLossScaleOptimizer instead."
            )
        if not strict:  # agn-workers
            check_integer(OWNER, "num_worker", num_worker)
            check_integer(OWNER, "communication_period", communication_period)
        self.strict = strict
        self.inner_optimizer = optimizer
        self.custom_getter = custom_getter
        self.communication_period = communication_period
        self.commit = commit
        self.local_step = Variable("local_step", 0, np.int32)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
    ) -> None:
        """Take one local step; at the end of a round, push and pull.

        ``global_step`` counts the rounds of all workers that share it.

        Raises:
            KeyError: a variable that was not created through the getter.
            ValueError: there are no pairs, or every gradient is None.
        """
        if self.strict and isinstance(grads_and_vars, Iterator):  # agn-iterator
            raise errors.UnsupportedError(
                f"{OWNER}: expected a list of pairs, got a one-shot "
                f"{type(grads_and_vars).__name__}; make it a list, or leave strict off."
            )
        super().apply_gradients(grads_and_vars, global_step)

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Take one local step; at the end of a round, push and pull."""
        accumulators = self.custom_getter._grad_map
        for _, variable in pairs:
            if variable not in accumulators:
                raise errors.NotFromGetterError(
                    f"{OWNER}: expected variables made through the {GETTER}, got "
                    f"{variable.name!r}; pass it to the getter first."
                )
        present = [(g, variable) for g, variable in pairs if g is not None]
        before = [variable.value for _, variable in present]
        self.inner_optimizer.apply_gradients(pairs)
        for (gradient, variable), value in zip(present, before, strict=True):
            with np.errstate(all="ignore"):
                change: Array | Rows = gradient
                if self.commit == "delta":
                    change = np.asarray(variable.value - value)
                elif isinstance(gradient, Rows):
                    # A sum that starts at 0 is never -0.0.
                    change = np.zeros_like(value) + arrays.densify(
                        gradient, value.shape
                    )
                total = accumulators[variable].value
                accumulators[variable].value = np.asarray(total + change)
        arrays.advance(self.local_step)
        step, period = int(self.local_step.value), self.communication_period
        is_due = step % period == 0
        after = (
            "pushed and pulled" if is_due else f"{-step % period} more before the push"
        )
        # Before the push, which is a step of the inner optimizer with its own report.
        self.last_step = self.report(pairs, f"local step {step}, {after}")
        if is_due:
            variables = [variable for _, variable in present]
            self.push(variables)
            self.begin_round(variables)
            arrays.advance(global_step)

    def push(self, variables: list[Variable]) -> None:
        """Apply the mean changes of ``variables`` to the shared ones."""
        getter, means = self.custom_getter, {}
        for variable in variables:
            total = getter._grad_map[variable].value
            with np.errstate(all="ignore"):
                period = total.dtype.type(self.communication_period)
                means[variable.name] = np.asarray(total / period)
            if not self.strict:  # agn-row-clipping
                shared = getter._global_map[variable]
                share_row_axes(variable, shared, self.inner_optimizer)
        optimizer = None if self.commit == "delta" else self.inner_optimizer
        getter.center.push(means, optimizer)

    def begin_round(self, variables: Iterable[Variable]) -> None:
        """Set ``variables`` to the shared values, and their accumulators to 0."""
        getter = self.custom_getter
        for variable in variables:
            variable.value = getter._global_map[variable].value
            getter._grad_map[variable].value = np.zeros_like(variable.value)

    def get_init_op(self, task_index: int) -> None:
        """Set every variable to its shared value, and its accumulator to 0.

        In a graph this returns an operation; here it runs immediately. Without any
        variable it raises a ValueError. ``task_index``, the worker's number, is without
        effect, as in the original.
        """
        if not self.custom_getter._global_map:
            raise errors.NoGradientsError(
                f"{OWNER}.get_init_op: expected at least one variable, got none; pass "
                f"the variables to the {GETTER} first."
            )
        self.begin_round(self.custom_getter._global_map)
