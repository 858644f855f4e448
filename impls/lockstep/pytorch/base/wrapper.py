"""The base of all wrappers: a torch optimizer around another one."""

from __future__ import annotations

import contextlib
import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import (
    _global_optimizer_post_hooks,
    _global_optimizer_pre_hooks,
)
from torch.utils.hooks import RemovableHandle

from lockstep.interface import GATE_OP
from lockstep.messages import pytorch as words
from lockstep.messages.base.pipeline import stages_of
from lockstep.messages.masters import refusals as masters_refusals
from lockstep.messages.step.numbers import check_target, numbers_of
from lockstep.pytorch.base.foreign_state import check_groups, check_mapping
from lockstep.pytorch.base.gradients import (
    Pairs,
    check_group,
    in_group,
    named_parameters,
    refuse_sharded,
)
from lockstep.pytorch.base.not_traced import untraced
from lockstep.pytorch.base.summaries import StepSummaries
from lockstep.pytorch.base.train_v1 import TrainV1, evaluate
from lockstep.pytorch.base.trial_step import check_base
from lockstep.pytorch.tensors.zero_test import all_zero_flags

__all__ = ["OptimizerWrapper", "needs_closure", "restore_numbers"]

MISSING = object()
HOOK_TABLES = [name for name in Optimizer.__annotations__ if name.endswith("_hooks")]


def _live(name: str) -> property:
    """Return a property for ``name``, an attribute of the wrapped optimizer."""

    def read(self: OptimizerWrapper) -> Any:
        return getattr(self.inner_optimizer, name)

    def write(self: OptimizerWrapper, value: Any) -> None:
        setattr(self.inner_optimizer, name, value)

    return property(read, write, doc=f"``{name}`` of the wrapped optimizer, live.")


class OptimizerWrapper(TrainV1, Optimizer):
    """An optimizer whose groups, state and defaults are those of ``inner_optimizer``.

    Nothing is copied. So both see every change of a group, for example by a scheduler
    or ``load_state_dict``. Hooks that are registered on the wrapper run once a step and
    get the wrapper. Hooks of the wrapped optimizer still get that optimizer. A subclass
    overrides :meth:`step_inner`.

    Raises:
        UnsupportedError: ``inner_optimizer`` needs its closure several times a step
            (LBFGS), or it or an optimizer inside it trains masters.
    """

    # So GradScaler checks the gradients itself and skips the whole step.
    _step_supports_amp_scaling = False

    _divides_inside = False
    """Whether the optimizer inside may divide gradients as it updates, not earlier."""

    _undivided_by = 1.0
    """What the gradients of this step are still multiplied by, then."""

    _takes_shards = True
    """Whether the wrapper can train DTensors if it is neither strict nor capturable."""

    _summaries: RemovableHandle | None = None

    param_groups = _live("param_groups")
    state = _live("state")
    defaults = _live("defaults")

    def __init__(self, inner_optimizer: Optimizer) -> None:
        if needs_closure(inner_optimizer):
            owner, got = type(self).__name__, type(inner_optimizer).__name__
            raise words.NEEDS_CLOSURE.error(owner=owner, opt=got)
        self._refuse_masters(inner_optimizer)
        self._refuse_sharded(named_parameters(inner_optimizer))
        self.__setstate__({"inner_optimizer": inner_optimizer})

    def _refuse_masters(self, inner_optimizer: Optimizer) -> None:
        """Raise for masters inside, which have no gradients before their own step."""
        if getattr(inner_optimizer, "trains_masters", False):
            raise masters_refusals.MASTERS_INSIDE.error(owner=type(self).__name__)

    def __getstate__(self) -> dict[str, Any]:
        """Return the public attributes. As in torch, hooks are not copied."""
        own = vars(self).items()
        return {k: v for k, v in own if not k.startswith("_") and k != "step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for table in HOOK_TABLES:
            vars(self).setdefault(table, OrderedDict())
        self._patch_step_function()

    def __getattr__(self, name: str) -> Any:
        """Forward an attribute of the wrapped optimizer, but none of its methods.

        A method such as the first step of a two-step optimizer would update past the
        wrapper: unscaled, unclipped, with zeros. ``train`` and ``eval`` are forwarded.
        """
        owner = type(self).__name__
        missing = f"{owner!r} object has no attribute {name!r}"
        if name == "inner_optimizer" or name.startswith("__"):
            raise AttributeError(missing)
        inner = self.inner_optimizer
        while isinstance(inner, OptimizerWrapper):
            with contextlib.suppress(AttributeError):
                return object.__getattribute__(inner, name)
            inner = inner.inner_optimizer
        value = getattr(inner, name, MISSING)
        if value is MISSING:
            raise AttributeError(missing)
        if callable(value) and name not in ("train", "eval"):
            raise AttributeError(
                f"{missing}: expected a method of the wrapper, got one of "
                f"{type(inner).__name__}, which would update past it; call "
                f"inner_optimizer.{name} if that is what you want."
            )
        return value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner_optimizer!r})"

    @untraced
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step with the gradients in ``.grad``.

        Args:
            closure: computes the loss and its gradients again. It is called once,
                before anything else.

        Returns:
            The result of ``closure``, or None without one.
        """
        if self._is_watched():
            arguments = () if closure is None else (closure,)
            return self._step_with_hooks(*arguments)
        return self._step(closure)

    # Otherwise torch would add its hooks and a profiler range to every step.
    step.hooked = True

    def _is_watched(self) -> bool:
        """Whether a hook or a profiler must see the next step."""
        return bool(
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or torch.autograd._profiler_enabled()
        )

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step without calling the hooks and the profiler."""
        # A group that was added later may contain the first masters.
        self._refuse_masters(self.inner_optimizer)
        self._refuse_sharded(p for group in self.param_groups for p in group["params"])
        loss = None if closure is None else evaluate(closure)
        self.step_inner()
        return loss

    _step_with_hooks = Optimizer.profile_hook_step(_step)

    def _refuse_sharded(self, parameters: Iterable[Tensor]) -> None:
        """Raise if a parameter is a DTensor but the wrapper needs whole parameters."""
        own = vars(self)
        if not self._takes_shards:
            refuse_sharded(type(self).__name__, parameters)
        elif own.get("strict") or own.get("capturable"):
            option = "strict" if own.get("strict") else "capturable"
            refuse_sharded(type(self).__name__, parameters, f"{option}=True")

    def compute_gradients(
        self,
        loss: Tensor | Callable[[], Tensor],
        var_list: Iterable[Tensor] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Tensor | float | None = None,
    ) -> Pairs:
        """Differentiate ``loss``, scaled by a loss scale inside: see the base class."""
        inner: Any = self.inner_optimizer
        scales = isinstance(inner, OptimizerWrapper) and "unscale" in stages_of(inner)
        compute = inner.compute_gradients if scales else super().compute_gradients
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        return compute(loss, var_list, *options, grad_loss)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with these gradients: see the base class.

        The given gradients are not changed, so unscaling or clipping makes a copy. A
        skipped step does not advance ``global_step``. With ``capturable``,
        ``global_step`` must be on the device of the parameters.
        """
        self._forget_unscaled()
        self._lend(True)
        try:
            super().apply_gradients(grads_and_vars, global_step, name)
        finally:
            self._lend(False)

    def _lend(self, is_lent: bool) -> None:
        """Tell all wrappers inside whether the next step must not change gradients."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer._lend(is_lent)

    def _forget_unscaled(self) -> None:
        """Discard the results of ``unscale_`` in this wrapper and all inside it."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer._forget_unscaled()

    def step_inner(self) -> None:
        """Call the wrapped optimizer's ``step``."""
        self.inner_optimizer.step()

    def _only_wants_state(self, with_gradient: Sequence[Tensor]) -> bool:
        """Whether ``torch.distributed.checkpoint`` takes this step to create the state.

        It then loads into this state. Such a step has zero gradients, rate 0 and
        ``no_grad``. It must reach the wrapped optimizer, because otherwise the
        checkpoint would not be loaded and no error would show it. It must have no other
        effect.
        """
        # ``state`` is read last, because some wrappers have to build it first.
        if torch.is_grad_enabled() or self.state:
            return False
        idle = all(group.get("lr") == 0 for group in self.param_groups)
        return idle and all(all_zero_flags([p.grad for p in with_gradient]))

    def note_no_gradients(self) -> None:
        """Set ``last_step`` to that of a step without gradients, here and inside."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer.note_no_gradients()

    def step_numbers(self) -> dict[str, float]:
        """Return what the last step did, as numbers by tag, for loggers.

        All wrappers have ``applied`` (0 or 1) and ``skipped_variables``, and some more:

        - wrappers with a loss scale: ``loss_scale``, ``skipped_steps`` and
          ``skipped_in_a_row``. With ``clip_norm`` also ``global_gradient_norm`` and
          ``clip_factor``, if the gradients were finite.
        - row clipping: ``rows`` and ``clipped_rows``.
        - AGN: ``local_step`` and ``ended_round``. With a center on Ray also
          ``center_rounds``, ``staleness`` and ``pushed_bytes``.

        The numbers of wrappers inside are included. A call costs as much as reading
        ``last_step``.
        """
        inner, report = self.inner_optimizer, getattr(self, "last_step", None)
        numbers = inner.step_numbers() if isinstance(inner, OptimizerWrapper) else {}
        return numbers if report is None else {**numbers, **numbers_of(report)}

    def summaries_to(self, target: Any, every: int = 1, start: int = 0) -> None:
        """Pass :meth:`step_numbers` to a writer or a function after each further step.

        Args:
            target: a ``torch.utils.tensorboard.SummaryWriter``, an object with its
                method ``add_scalar``, or a function of (numbers, step). None stops the
                calls.
            every: the number of steps between two calls.
            start: the number of steps that were taken before, as in a resumed run.

        Raises:
            TypeError: ``target`` is none of these.
            ValueError: ``every`` or ``start`` is not a valid number of steps.
        """
        check_target(type(self).__name__, target, every, start)
        if self._summaries is not None:
            self._summaries.remove()
            self._summaries = None
        if target is not None:
            hook = StepSummaries(target, every, start)
            self._summaries = self.register_step_post_hook(hook)

    def took_step(self) -> bool | Tensor:
        """Whether the last step counts, as the wrapped optimizer reports it."""
        inner = self.inner_optimizer
        return inner.took_step() if isinstance(inner, TrainV1) else True

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients, as the wrapped optimizer does it."""
        self.inner_optimizer.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to the wrapped optimizer."""
        check_group(type(self).__name__, param_group)
        if isinstance(param_group["params"], Iterator):
            param_group = {**param_group, "params": list(param_group["params"])}
        self._refuse_sharded(in_group(param_group["params"]))
        self.inner_optimizer.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state. Each can load the other's state."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        state_dict = self._save_inner()
        for hook in self._optimizer_state_dict_post_hooks.values():
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        return state_dict

    def _save_inner(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state."""
        return self.inner_optimizer.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what ``state_dict`` returned.

        Raises:
            ValueError: not a saved state, or the state of other groups, of another
                optimizer or of another stack. Nothing is loaded then.
        """
        check_mapping(type(self).__name__, state_dict)
        state_dict = state_dict.copy()
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            replaced = hook(self, state_dict)
            state_dict = state_dict if replaced is None else replaced
        self._check_saved(state_dict)
        self._load_inner(state_dict)
        for hook in self._optimizer_load_state_dict_post_hooks.values():
            hook(self)

    def _check_saved(self, state_dict: dict[str, Any]) -> None:
        """Raise if the state is not of this stack, before anything changes."""
        keeps_masters = getattr(self, "keeps_masters", False)
        check_groups(type(self).__name__, state_dict, self, keeps_masters)
        inner, saved = self.inner_optimizer, self._of_inner(state_dict)
        if isinstance(inner, OptimizerWrapper):
            inner._check_saved(saved)
        else:
            check_base(type(self).__name__, saved, inner)

    def _of_inner(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a saved state as the wrapped optimizer would have saved it."""
        return state_dict

    def _load_inner(self, state_dict: dict[str, Any]) -> None:
        """Load the state into the wrapped optimizer."""
        # A copy, because ZeroRedundancyOptimizer writes None into it.
        lent = {**state_dict, "state": dict(state_dict["state"])}
        self.inner_optimizer.load_state_dict(lent)
        restore_numbers(self.inner_optimizer, state_dict)

    def get_name(self) -> str:
        """Return the name of the wrapped optimizer."""
        inner = self.inner_optimizer
        return inner.get_name() if isinstance(inner, TrainV1) else type(inner).__name__

    def variables(self) -> list[Tensor]:
        """Return the state tensors of the wrapped optimizer."""
        inner = self.inner_optimizer
        return inner.variables() if isinstance(inner, TrainV1) else super().variables()


def restore_numbers(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Load 0-d state again in its saved dtype, where torch changed the dtype.

    torch casts floating-point state to the dtype of the parameter. In float16 that
    would change numbers such as NAdam's product of many factors.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [k for group in saved["param_groups"] for k in group["params"]]
    for parameter, number in zip(parameters, numbers, strict=True):
        # ZeroRedundancyOptimizer has None for the parameters of other ranks.
        loaded = optimizer.state.get(parameter) or {}
        for key, value in saved["state"].get(number, {}).items():
            slot = loaded.get(key)
            if not (isinstance(value, Tensor) and isinstance(slot, Tensor)):
                continue
            if slot.dtype != value.dtype:
                if value.dim() == 0 < parameter.dim():
                    restored = value.to(slot.device, copy=True)
                    optimizer.state[parameter][key] = restored


def needs_closure(optimizer: Optimizer) -> bool:
    """Whether ``step`` requires a closure, which it then calls several times."""
    parameters = inspect.signature(optimizer.step).parameters
    closure = parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
