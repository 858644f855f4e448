"""The TF1 optimizers over NumPy variables: one class per rule, one shared loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from lockstep.docstrings import documented
from lockstep.errors import sentence
from lockstep.interface import (
    GATE_GRAPH,
    GATE_NONE,
    GATE_OP,
    NO_GRADIENTS,
    Array,
    Gradient,
    Rows,
)
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.base.differentiation import (
    check_count,
    check_options,
    refuse_text,
)
from lockstep.optimizers import OPTIMIZERS, OptimizerSpec
from lockstep.quirks import quirks_of
from lockstep.reference.base.pairs import (
    Pairs,
    advance,
    check_counter,
    check_pairs,
    listed,
    upstream,
)
from lockstep.reference.optimizers.rules import (
    Shared,
    adagrad,
    adam,
    adamw,
    ftrl,
    gradient_descent,
    momentum,
    rmsprop,
)
from lockstep.reference.tensors.variable import Variable

__all__ = [
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "FtrlOptimizer",
    "GradientDescentOptimizer",
    "MomentumOptimizer",
    "Optimizer",
    "RMSPropOptimizer",
]


class Optimizer:
    """Base of every optimizer and wrapper of the reference."""

    GATE_NONE, GATE_OP, GATE_GRAPH = GATE_NONE, GATE_OP, GATE_GRAPH

    @documented
    def compute_gradients(
        self,
        loss: Callable[[], Iterable[Gradient]],
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: float | None = None,
    ) -> Pairs:
        """Pair the gradients that ``loss()`` returns with ``var_list``.

        NumPy has no automatic differentiation, so ``loss`` is a callable that returns
        the gradients themselves, one for each variable of ``var_list``. They are
        multiplied by ``grad_loss`` if it is given. An entry may also be a function from
        d loss (1, ``grad_loss`` or the loss scale) to the gradient. This is for sums
        whose terms must be scaled first, as with a penalty. The other options are
        checked, but have no effect.

        Raises:
            LossNotCallableError: a RuntimeError; ``loss`` is no function.
            VarListError: a TypeError and ValueError; no list of variables.
            ValueError: an option is out of range, or the number of gradients differs
                from the number of variables.
        """
        owner = self.get_name()
        check_options(owner, gate_gradients, aggregation_method)
        variables = listed(var_list, owner)
        refuse_text(grad_loss, owner)
        if not callable(loss):
            raise base_refusals.LOSS_NOT_CALLABLE.error(
                owner=owner, got=type(loss).__name__
            )
        gradients = list(loss())
        check_count(owner, len(variables), len(gradients))
        gradients = [upstream(g, grad_loss) for g in gradients]
        return list(zip(gradients, variables, strict=True))

    @documented
    def minimize(
        self,
        loss: Callable[[], Iterable[Gradient]],
        global_step: Variable | None = None,
        var_list: Iterable[Variable] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: float | None = None,
    ) -> None:
        pairs = self.compute_gradients(
            loss,
            var_list,
            gate_gradients,
            aggregation_method,
            colocate_gradients_with_ops,
            grad_loss,
        )
        self.apply_gradients(pairs, global_step, name)

    @documented
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
        name: str | None = None,
    ) -> None:
        """Update every variable that has a gradient, then the global step."""
        pairs = check_pairs(grads_and_vars, self.get_name())
        check_counter(global_step, self.get_name())
        for gradient, variable in pairs:
            if gradient is not None:
                self.update(gradient, variable)
        self.advance_shared()
        advance(global_step)

    def update(self, gradient: Array | Rows, variable: Variable) -> None:
        """Apply the rule to one variable."""
        raise NotImplementedError

    def advance_shared(self) -> None:
        """Advance the scalars that all variables share, after all updates."""

    def note_no_gradients(self) -> None:
        """Set ``last_step`` to ``NO_GRADIENTS``, also in the wrappers inside."""
        if "inner_optimizer" in vars(self):
            vars(self)["last_step"] = NO_GRADIENTS
            vars(self)["inner_optimizer"].note_no_gradients()

    @documented
    def get_name(self) -> str:
        return type(self).__name__

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return the state array ``name`` of ``var``; None before its first update."""
        raise NotImplementedError

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist."""
        raise NotImplementedError

    def variables(self) -> list[Array]:
        """Return every array of state: slots, then shared scalars."""
        raise NotImplementedError


class RuleOptimizer(Optimizer):
    """An optimizer with slots that applies one rule of this folder.

    Hyper-parameters are checked against
    :data:`lockstep.optimizers.RULES`. Hyper-parameters, gradient
    and variable are cast to ``working_dtype`` before any arithmetic. Slots have this
    dtype too. The new value is rounded to the variable's dtype. ``sums_duplicates``:
    whether the rule sums the rows of a sparse gradient that share an index.
    """

    spec: OptimizerSpec
    rule: ModuleType
    sums_duplicates = True

    __signature__: ClassVar[inspect.Signature | None]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # A strict class has its own constructor, and shows its signature.
        spec = vars(cls).get("spec")
        cls.__signature__ = None if spec is None else shown(spec)

    def __init__(self, *args: Any, strict: bool = False, **kwargs: Any) -> None:
        names = self.spec.signature.parameters
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        self.name = arguments.get("name") or self.spec.name
        self.quirks = quirks_of(strict)
        self.arguments: Mapping[str, Any] = self.spec.bind(args, kwargs)
        self.slots: dict[Variable, dict[str, Array]] = {}
        self.shared: Shared = {
            name: np.asarray(self.arguments[start], np.float32)
            for name, start in (self.spec.shared or {}).items()
        }

    def update(self, gradient: Array | Rows, variable: Variable) -> None:
        """Apply the rule; the first update of a variable creates its slots."""
        slots = self.slots.get(variable)
        if slots is None:
            slots = self.initial_slots(variable)
        is_rows = isinstance(gradient, Rows)
        rule = self.rule.update_rows if is_rows else self.rule.update_dense
        policy = self.policy(variable.dtype)
        working = self.working_dtype(variable.dtype)
        with np.errstate(all="ignore"):
            value, self.slots[variable] = rule(
                policy,
                self.shared,
                np.asarray(variable.value, working),
                slots,
                cast_gradient(gradient, working),
            )
            variable.value = value.astype(variable.dtype, copy=False)

    def working_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the rule's arithmetic for a variable of ``dtype``.

        This is at least float32. Strict: ``dtype`` itself, so the usual beta2 is 1 in
        bfloat16.
        """
        own = self.quirks.half_precision_scalars
        return dtype if own else np.promote_types(dtype, np.float32)

    def policy(self, dtype: np.dtype[Any]) -> Any:
        """Return the rule's hyper-parameters for variables of ``dtype``."""
        dtype = self.working_dtype(dtype)
        cast = {
            name: value if isinstance(value, bool) else dtype.type(value)
            for name, value in self.arguments.items()
        }
        return self.rule.Policy(**cast)

    def initial_slots(self, variable: Variable) -> dict[str, Array]:
        """Return new slots for a variable, filled with their initial values."""
        wide = np.promote_types(variable.dtype, np.float32)
        working = self.working_dtype(variable.dtype)
        return {
            slot.name: np.full(
                () if slot.scalar else variable.shape,
                self.spec.initial_value(slot, self.arguments),
                wide if slot.scalar else working,
            )
            for slot in self.spec.active_slots(self.arguments)
        }

    def advance_shared(self) -> None:
        """Multiply each shared power by its parameter, in float32."""
        for name, factor in (self.spec.shared or {}).items():
            self.shared[name] = self.shared[name] * np.float32(self.arguments[factor])

    def get_name(self) -> str:
        """Return the name from the constructor, or the rule's default name."""
        return self.name

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return the state array ``name`` of ``var``; None before its first update."""
        return self.slots.get(var, {}).get(name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that the rule has with these arguments."""
        return [slot.name for slot in self.spec.active_slots(self.arguments)]

    def variables(self) -> list[Array]:
        """Return every array of state: slots, then shared scalars."""
        slots = [array for named in self.slots.values() for array in named.values()]
        return [*slots, *self.shared.values()]


def shown(spec: OptimizerSpec) -> inspect.Signature:
    """Return a constructor's signature: TensorFlow 1's arguments, and ``strict``."""
    kind = inspect.Parameter.KEYWORD_ONLY
    strict = inspect.Parameter("strict", kind, default=False)
    return inspect.Signature([*spec.signature.parameters.values(), strict])


@documented
class GradientDescentOptimizer(RuleOptimizer):
    """Gradient descent over NumPy variables.

    ...
    """

    spec, rule = OPTIMIZERS["GradientDescent"], gradient_descent
    sums_duplicates = False


@documented
class MomentumOptimizer(RuleOptimizer):
    """Gradient descent with momentum, over NumPy variables.

    ...
    """

    spec, rule = OPTIMIZERS["Momentum"], momentum


@documented
class AdamOptimizer(RuleOptimizer):
    """Adam over NumPy variables, which share the powers of beta.

    ...
    """

    spec, rule = OPTIMIZERS["Adam"], adam


@documented
class AdamWOptimizer(RuleOptimizer):
    """AdamW over NumPy variables: the decay is not multiplied by the rate.

    ...
    """

    spec, rule = OPTIMIZERS["AdamW"], adamw


@documented
class AdagradOptimizer(RuleOptimizer):
    """Adagrad over NumPy variables, without an epsilon.

    ...
    """

    spec, rule = OPTIMIZERS["Adagrad"], adagrad


@documented
class RMSPropOptimizer(RuleOptimizer):
    """RMSProp over NumPy variables; the mean square starts at one.

    ...
    """

    spec, rule = OPTIMIZERS["RMSProp"], rmsprop


@documented
class FtrlOptimizer(RuleOptimizer):
    """FTRL-proximal over NumPy variables.

    ...

    Args:
        strict: as the original: compute in the dtype of the variable, also in half
            precision, and raise at rate 0.

    Raises:
        ...
        ValueError: under ``strict``, a step at rate 0.
    """

    spec, rule = OPTIMIZERS["Ftrl"], ftrl

    def policy(self, dtype: np.dtype[Any]) -> Any:
        """Return the rule's hyper-parameters for variables of ``dtype``."""
        return super().policy(dtype)._replace(hides_nan=self.quirks.ftrl_nan)

    def update(self, gradient: Array | Rows, variable: Variable) -> None:
        """Apply the rule; at rate 0 nothing changes (strict: ValueError)."""
        if self.arguments["learning_rate"] == 0:
            if self.quirks.ftrl_zero_rate:
                remedy = "the original fails at rate 0; leave strict off to skip it"
                text = sentence("FtrlOptimizer", "learning_rate > 0", "0", remedy)
                raise ValueError(text)
            return
        super().update(gradient, variable)


def cast_gradient(gradient: Array | Rows, dtype: np.dtype[Any]) -> Array | Rows:
    """Return a gradient, or its rows, in ``dtype``."""
    if isinstance(gradient, Rows):
        return gradient._replace(values=np.asarray(gradient.values, dtype))
    return np.asarray(gradient, dtype)


def base_of(optimizer: Any) -> RuleOptimizer:
    """Return the innermost optimizer, which has the slots."""
    while not isinstance(optimizer, RuleOptimizer):
        optimizer = optimizer.inner_optimizer
    return optimizer
