"""Accumulated gradient normalization for asynchronous workers, over NumPy variables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

import numpy as np

from lockstep import errors
from lockstep.checks import check_integer
from lockstep.interface import Array, Gradient, Rows
from lockstep.pipeline import base_of, has_layer, stages_of
from lockstep.ray.center import RayCenter, as_ray_host
from lockstep.ray.served_center import layout
from lockstep.ray.worker import RemoteView
from lockstep.reference import arrays
from lockstep.reference.arrays import Pairs, Variable
from lockstep.reference.optimizers import Optimizer, Slots, Wrapper
from lockstep.reference.variable_clipping import share_row_limits

OWNER, GETTER = "AGNOptimizer", "AGNCustomGetter"

GLOBAL_VARIABLE_NAME = "global_center_variable"
"""The prefix of a shared variable's name, before the worker's variable name."""
GRAD_VARIABLE_NAME = "grad_variable"
"""The prefix of an accumulator's name, before the variable's name."""


# -- the rule --------------------------------------------------------------------------


def add_changes(
    accumulators: Sequence[Array], changes: Sequence[Array | Rows]
) -> list[Array]:
    """Return each accumulator + its change; duplicate sparse rows are summed first.

    A change is a gradient, or the difference that a step made to a weight.
    """

    def dense(change: Array | Rows, accumulator: Array) -> Array:
        if not isinstance(change, Rows):
            return change
        # A sum that starts at 0 is never -0.0.
        return np.zeros_like(accumulator) + arrays.densify(change, accumulator.shape)

    with np.errstate(all="ignore"):
        pairs = zip(accumulators, changes, strict=True)
        return [np.asarray(a + dense(change, a)) for a, change in pairs]


def is_due(local_step: int, period: int) -> bool:
    """Return whether step ``local_step`` ends a round of ``period`` local steps."""
    return local_step % period == 0


def mean_changes(accumulators: Sequence[Array], period: int) -> list[Array]:
    """Return each accumulator / period, computed in its dtype."""
    with np.errstate(all="ignore"):
        return [np.asarray(a / a.dtype.type(period)) for a in accumulators]


# -- the center ------------------------------------------------------------------------


class Center:
    """Shared variables and their optimizer slots.

    The optimizer of the worker that pushes applies the update, with its own learning
    rate and powers of beta. During the update it uses the shared variables' slots.

    Attributes:
        variables: name of a worker's variable -> the shared variable.
        slots: shared variable -> its slots.
    """

    def __init__(self) -> None:
        self.variables: dict[str, Variable] = {}
        self.slots: dict[Variable, Slots] = {}

    def for_worker(self) -> Center:
        """Return the center for another worker."""
        return self

    def begin(self, commit: str) -> None:
        """Prepare for the pushes of a worker with this ``commit``."""

    def leave(self) -> None:
        """Note that a worker is done."""

    def join(self, name: str, variable: Variable) -> Variable:
        """Return the shared variable ``name``; the first worker's value is copied."""
        if name not in self.variables:
            full = f"{GLOBAL_VARIABLE_NAME}/{name}"
            self.variables[name] = Variable(full, variable.value)
        shared = self.variables[name]
        if (shared.shape, shared.dtype) != (variable.shape, variable.dtype):
            raise errors.UnsupportedError(
                f"{GETTER}: expected {name!r} to be {shared.dtype} "
                f"{list(shared.shape)}, as the shared one, got {variable.dtype} "
                f"{list(variable.shape)}; use another name."
            )
        return shared

    def pull(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the shared weights by name."""
        return {name: self.variables[name].value for name in names}

    def push(self, changes: Mapping[str, Array], optimizer: Any = None) -> None:
        """Apply mean gradients with the worker's optimizer; without one, add changes.

        ``changes``: name of a variable -> an array of its shape and dtype.
        """
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


class RemoteCenter(RemoteView, Center):
    """A worker's view of a center in another process, which adds workers' changes."""

    backend = "reference"

    def arrays(self) -> dict[str, Array]:
        """Return this worker's copies of the shared weights."""
        return {name: variable.value for name, variable in self.variables.items()}

    def join(self, name: str, variable: Variable) -> Variable:
        """Return the shared variable ``name``, with the center's value."""
        self.require_fit(layout({name: variable.value}))
        shared = super().join(name, variable)
        shared.value = self.known.get(name, shared.value)
        return shared

    def pull(self, names: Iterable[str]) -> dict[str, Array]:
        """Return the shared weights by name."""
        for name, weight in self.member.pull(names).items():
            self.variables[name].value = np.array(weight)
        return super().pull(names)

    def push(self, changes: Mapping[str, Array], optimizer: Any = None) -> None:
        """Send the accumulated changes to the center."""
        self.send(changes)


class AGNCustomGetter:
    """Make the shared variable and the accumulator of each of a worker's variables.

    NumPy has no variable scopes, so the getter is called with the worker's trainable
    variables instead. Workers share one center.

    Args:
        worker_device: as in TensorFlow; without effect.
        center: the :class:`Center` of the other workers, their getter's ``center``;
            None creates one. ``"ray://NAME"`` or a :class:`~lockstep.ray.RayCenter` is
            a center in its own process, for workers of other processes and machines.
        strict: as ``tf.contrib.opt.AGNCustomGetter`` (1.15): an accumulator holds the
            variable's value until the init op has run.

    Attributes:
        center: the weights that the workers share.

    Raises:
        GetterError: a TypeError; ``center`` is no center.

    Example:
        >>> first = AGNCustomGetter("/cpu:0")
        >>> (w,) = first([Variable("w", [1.0])])
        >>> second = AGNCustomGetter("/cpu:0", center=first.center)
        >>> (own_w,) = second([Variable("w", [7.0])])
        >>> second._global_map[own_w] is first._global_map[w]
        True
    """

    def __init__(
        self,
        worker_device: Any,
        center: Center | RayCenter | str | None = None,
        strict: bool = False,
    ) -> None:
        if host := as_ray_host(center):
            self.center: Center = RemoteCenter(host)
        elif center is None or isinstance(center, Center):
            self.center = Center() if center is None else center.for_worker()
        else:
            raise errors.GetterError(
                f"{GETTER}: center: expected the center of another worker's getter, "
                f"got {type(center).__name__}; pass its attribute, "
                "center=getter.center."
            )
        self.worker_device = worker_device
        self.strict = strict
        self._global_map: dict[Variable, Variable] = {}
        self._grad_map: dict[Variable, Variable] = {}

    def __call__(self, variables: Iterable[Variable]) -> list[Variable]:
        """Register trainable variables and return them; known variables do not change.

        Raises:
            UnsupportedError: a ValueError; two variables of one name, or one of another
                shape or dtype than the shared variable.
        """
        entered = list(variables)
        for variable in entered:
            if variable in self._global_map:
                continue
            name, known = variable.name, [other.name for other in self._global_map]
            if name in known:
                raise errors.UnsupportedError(
                    f"{GETTER}: expected variables with names of their own, got "
                    f"{name!r} twice; workers share what has the same name."
                )
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
        use_locking: without effect.
        name: the name that ``get_name`` returns.
        commit: ``"gradient"`` or ``"delta"``.
        strict: reproduce ``tf.contrib.opt.AGNOptimizer`` (1.15) with its quirks: pairs
            from a one-shot iterator are refused, arguments are not checked,
            ``get_slot`` returns None and ``variables()`` is empty, row clipping inside
            does not clip shared rows.

    Raises:
        TypeError: ``optimizer`` or ``custom_getter`` is none of the reference.
        ValueError: a period or count below 1, an unknown ``commit``, an ``optimizer``
            that scales losses.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AGNOptimizer``; J. Hermans, G. Spanakis,
    R. Moeckel, "Accumulated Gradient Normalization", 2017 (arXiv:1710.02368).
    """

    GLOBAL_VARIABLE_NAME = GLOBAL_VARIABLE_NAME
    GRAD_VARIABLE_NAME = GRAD_VARIABLE_NAME

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
        check_optimizer(optimizer)
        if not isinstance(custom_getter, AGNCustomGetter):
            raise errors.GetterError(
                f"{OWNER}: custom_getter: expected an AGNCustomGetter, got "
                f"{type(custom_getter).__name__}; pass the one that made the worker's "
                "variables."
            )
        if commit not in ("gradient", "delta"):
            raise errors.unknown_name(f"{OWNER}: commit", commit, ["gradient", "delta"])
        if not strict:  # agn-workers
            check_integer(OWNER, "num_worker", num_worker)
            check_integer(OWNER, "communication_period", communication_period)
        self.strict = strict
        self.inner_optimizer = optimizer
        self.num_worker = num_worker
        self.custom_getter = custom_getter
        self.communication_period = communication_period
        self.name = name
        self.commit = commit
        self.local_step = Variable("local_step", 0, np.int32)
        custom_getter.center.begin(commit)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
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
        super().apply_gradients(grads_and_vars, global_step, name)

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Take one local step; at the end of a round, push and pull."""
        for _, variable in pairs:
            if variable not in self.custom_getter._global_map:
                raise errors.NotFromGetterError(
                    f"{OWNER}: expected variables made through the {GETTER}, got "
                    f"{variable.name!r}; pass it to the getter first."
                )
        present = [(g, variable) for g, variable in pairs if g is not None]
        variables = [variable for _, variable in present]
        before = [variable.value for variable in variables]
        self.inner_optimizer.apply_gradients(pairs)
        changes: list[Array | Rows] = [gradient for gradient, _ in present]
        if self.commit == "delta":
            with np.errstate(all="ignore"):
                both = zip(variables, before, strict=True)
                changes = [np.asarray(v.value - value) for v, value in both]
        accumulators = [self.custom_getter._grad_map[v] for v in variables]
        added = add_changes([a.value for a in accumulators], changes)
        for accumulator, value in zip(accumulators, added, strict=True):
            accumulator.value = value
        arrays.advance(self.local_step)
        step, period = int(self.local_step.value), self.communication_period
        due = is_due(step, period)
        after = "pushed and pulled" if due else f"{-step % period} more before the push"
        # Before the push, which is a step of the inner optimizer with its own report.
        self.last_step = self.report(pairs, f"local step {step}, {after}")
        if due:
            self.communicate(variables)
            arrays.advance(global_step)

    def communicate(self, variables: list[Variable]) -> None:
        """End a round for ``variables``: push the mean changes, then pull."""
        getter, names = self.custom_getter, [variable.name for variable in variables]
        gathered = [getter._grad_map[variable].value for variable in variables]
        means = mean_changes(gathered, self.communication_period)
        for variable in variables if not self.strict else ():  # agn-row-clipping
            shared = getter._global_map[variable]
            share_row_limits(variable, shared, self.inner_optimizer)
        optimizer = None if self.commit == "delta" else self.inner_optimizer
        getter.center.push(dict(zip(names, means, strict=True)), optimizer)
        self.begin_round(variables)

    def begin_round(self, variables: Iterable[Variable]) -> None:
        """Set ``variables`` to the shared values, and their accumulators to 0."""
        variables, getter = list(variables), self.custom_getter
        pulled = getter.center.pull([variable.name for variable in variables])
        for variable in variables:
            variable.value = pulled[variable.name]
            accumulator = getter._grad_map[variable]
            accumulator.value = np.zeros_like(accumulator.value)

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

    @contextmanager
    def _started(self, task_index: int) -> Iterator[None]:
        self.get_init_op(task_index)
        with suppress(errors.TrainingEndedError):
            yield
        self.custom_getter.center.leave()

    def make_session_run_hook(
        self, is_chief: bool, task_index: int
    ) -> AbstractContextManager[None]:
        """Return a context whose entry runs the init op.

        TensorFlow's sessions have hooks. Here the training loop runs inside this
        context. With a center on Ray, the context exits when training is ended, and it
        notifies the center that this worker is done. The arguments have no effect.
        """
        return self._started(task_index)

    def get_name(self) -> str:
        """Return the name from the constructor."""
        return self.name

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of a worker's variable or of a shared one.

        A worker's variable has two slots besides those of the wrapped optimizer. Their
        names are the constants of this class. Strict (agn-slots): None.
        """
        if self.strict:
            return None
        getter = self.custom_getter
        own = {
            GLOBAL_VARIABLE_NAME: getter._global_map,
            GRAD_VARIABLE_NAME: getter._grad_map,
        }
        if name in own:
            variable = own[name].get(var)
            return None if variable is None else variable.value
        slot = getter.center.slot(var, name)
        return super().get_slot(var, name) if slot is None else slot

    def get_slot_names(self) -> list[str]:
        """Return the wrapped optimizer's slot names and the two of this class."""
        own = [GRAD_VARIABLE_NAME, GLOBAL_VARIABLE_NAME]
        return [] if self.strict else [*super().get_slot_names(), *own]

    def variables(self) -> list[Array]:
        """Return the state of the wrapped optimizer, the worker and the center."""
        if self.strict:
            return []
        getter = self.custom_getter
        gathered = [accumulator.value for accumulator in getter._grad_map.values()]
        shared = [variable.value for variable in getter.center.variables.values()]
        slots = [s for named in getter.center.slots.values() for s in named.values()]
        inner = super().variables()
        return [*inner, *gathered, self.local_step.value, *shared, *slots]


def check_optimizer(opt: Any) -> None:
    """Raise unless a worker can use the optimizer: it must not scale or share."""
    if not isinstance(opt, Optimizer):
        raise errors.NotAnOptimizerError(
            f"{OWNER}: expected a lockstep.reference optimizer, got "
            f"{type(opt).__name__}; pass the optimizer of this worker."
        )
    if has_layer(opt, OWNER) or "unscale" in stages_of(opt):
        raise errors.UnsupportedError(
            f"{OWNER}: expected an optimizer of unscaled gradients and a worker's own "
            f"float32 variables, got {type(opt).__name__}; wrap the other way round: "
            "MixedPrecisionLossScaleOptimizer around AGNOptimizer."
        )
