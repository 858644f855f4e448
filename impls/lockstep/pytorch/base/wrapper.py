"""The base of all wrappers: an optimizer of torch that lives off another one."""

from __future__ import annotations

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

from lockstep.messages import pytorch as words
from lockstep.messages.masters import refusals as masters_refusals
from lockstep.messages.step.numbers import check_target, numbers_of
from lockstep.pytorch.base.foreign_state import check_groups, check_mapping
from lockstep.pytorch.base.gradients import (
    check_group,
    in_group,
    named_parameters,
    refuse_sharded,
)
from lockstep.pytorch.base.not_traced import untraced
from lockstep.pytorch.base.step_summaries import StepSummaries
from lockstep.pytorch.base.train_v1 import TrainV1, evaluate
from lockstep.pytorch.base.trial_step import check_base
from lockstep.pytorch.tensors.zero_test import all_zero_flags

__all__ = ["OptimizerWrapper", "needs_closure", "restore_numbers"]

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

    Nothing is copied, so whatever replaces or edits a group (a scheduler,
    ``load_state_dict``) is seen by both. Hooks are the wrapper's own: those registered
    here fire once a step, with the wrapper; those of the wrapped optimizer with itself.
    A subclass overrides :meth:`step_inner`.

    Raises:
        UnsupportedError: the optimizer needs its closure several times a step (LBFGS),
            or trains masters, at any depth.
    """

    # GradScaler must look at the gradients itself and skip our step as a whole.
    _step_supports_amp_scaling = False

    _takes_shards = True
    """Whether it can train DTensors, unless it is strict or capturable."""

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
        """Raise for an optimizer that trains masters: they have no gradients yet."""
        if getattr(inner_optimizer, "trains_masters", False):
            raise masters_refusals.MASTERS_INSIDE.error(owner=type(self).__name__)

    def __getstate__(self) -> dict[str, Any]:
        """Return the public attributes; hooks do not travel, as in torch."""
        own = vars(self).items()
        return {k: v for k, v in own if not k.startswith("_") and k != "step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        for table in HOOK_TABLES:
            vars(self).setdefault(table, OrderedDict())
        self._patch_step_function()

    def __getattr__(self, name: str) -> Any:
        if name == "inner_optimizer" or name.startswith("__"):
            raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
        return getattr(self.inner_optimizer, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.inner_optimizer!r})"

    @untraced
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step on the gradients in ``.grad``.

        Args:
            closure: computes the loss and its gradients anew; it is called once, before
                anything else.

        Returns:
            What ``closure``, if there is one, returned.
        """
        if self._is_watched():
            arguments = () if closure is None else (closure,)
            return self._step_with_hooks(*arguments)
        return self._step(closure)

    # Else torch would bring the hooks, and the profiler's range, into every step.
    step.hooked = True

    def _is_watched(self) -> bool:
        """Whether a hook or a profiler is to see the next step."""
        return bool(
            self._optimizer_step_pre_hooks
            or self._optimizer_step_post_hooks
            or _global_optimizer_pre_hooks
            or _global_optimizer_post_hooks
            or torch.autograd._profiler_enabled()
        )

    def _step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step that neither a hook nor a profiler sees."""
        # A group that was added since may have brought the first masters.
        self._refuse_masters(self.inner_optimizer)
        self._refuse_sharded(p for group in self.param_groups for p in group["params"])
        loss = None if closure is None else evaluate(closure)
        self.step_inner()
        return loss

    _step_with_hooks = Optimizer.profile_hook_step(_step)

    def _refuse_sharded(self, parameters: Iterable[Tensor]) -> None:
        """Raise for DTensors among parameters, where they must be whole."""
        own = vars(self)
        if not self._takes_shards:
            refuse_sharded(type(self).__name__, parameters)
        elif own.get("strict") or own.get("capturable"):
            option = "strict" if own.get("strict") else "capturable"
            refuse_sharded(type(self).__name__, parameters, f"{option}=True")

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with these gradients: see the base class."""
        self._forget_unscaled()
        super().apply_gradients(grads_and_vars, global_step, name)

    def _forget_unscaled(self) -> None:
        """Let gradients that were unscaled by hand, at any depth, be no longer."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer._forget_unscaled()

    def step_inner(self) -> None:
        """Let the wrapped optimizer take its step."""
        self.inner_optimizer.step()

    def _only_wants_state(self, with_gradient: Sequence[Tensor]) -> bool:
        """Recognise the step that ``torch.distributed.checkpoint`` takes by itself.

        It makes the state that is then loaded into: zero gradients at rate 0 under
        ``no_grad``. It must reach the wrapped optimizer, or the checkpoint would be
        ignored in silence, and nothing else may come of it.
        """
        # Asked last: a wrapper may have to put together what it shows as its state.
        if torch.is_grad_enabled() or self.state:
            return False
        idle = all(group.get("lr") == 0 for group in self.param_groups)
        return idle and all(all_zero_flags([p.grad for p in with_gradient]))

    def note_no_gradients(self) -> None:
        """Let ``last_step`` be that of a step without gradients, here and inside."""
        if isinstance(self.inner_optimizer, OptimizerWrapper):
            self.inner_optimizer.note_no_gradients()

    def step_numbers(self) -> dict[str, float]:
        """Return what the last step did, as numbers by tag: for loggers.

        ``applied`` (0 or 1) and ``skipped_variables``; of wrappers that scale
        ``loss_scale``, ``skipped_steps``, ``skipped_in_a_row`` and, with ``clip_norm``,
        ``global_gradient_norm`` and ``clip_factor`` where the gradients were finite; of
        row clipping ``rows`` and ``clipped_rows``; of AGN ``local_step`` and
        ``ended_round``, and with a center on Ray ``center_rounds``, ``staleness`` and
        ``pushed_bytes``. Those of wrappers inside are there, too. Costs what reading
        ``last_step`` costs.
        """
        inner, report = self.inner_optimizer, getattr(self, "last_step", None)
        numbers = inner.step_numbers() if isinstance(inner, OptimizerWrapper) else {}
        return numbers if report is None else {**numbers, **numbers_of(report)}

    def summaries_to(self, target: Any, every: int = 1, start: int = 0) -> None:
        """Hand :meth:`step_numbers` over after steps from now on.

        Args:
            target: a ``torch.utils.tensorboard.SummaryWriter``, or whatever has its
                ``add_scalar``; or a function of (numbers, step). None stops it.
            every: steps between two calls of it.
            start: steps that were taken before, as in a run that is resumed.

        Raises:
            TypeError: ``target`` is none of these.
            ValueError: no numbers of steps.
        """
        check_target(type(self).__name__, target, every, start)
        if self._summaries is not None:
            self._summaries.remove()
            self._summaries = None
        if target is not None:
            hook = StepSummaries(target, every, start)
            self._summaries = self.register_step_post_hook(hook)

    def took_step(self) -> bool | Tensor:
        """Ask the wrapped optimizer whether the step just taken counts."""
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
        """Return the wrapped optimizer's state: the two can load each other's."""
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
            ValueError: no state, or that of other groups, of another optimizer or
                another stack; nothing has changed then.
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
        """Raise for a state that is not of this stack; nothing has changed then."""
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
        """Let the wrapped optimizer load its state."""
        self.inner_optimizer.load_state_dict(state_dict)
        restore_numbers(self.inner_optimizer, state_dict)

    def get_name(self) -> str:
        """Return the name of what is wrapped."""
        inner = self.inner_optimizer
        return inner.get_name() if isinstance(inner, TrainV1) else type(inner).__name__

    def variables(self) -> list[Tensor]:
        """Return the state of what is wrapped."""
        inner = self.inner_optimizer
        return inner.variables() if isinstance(inner, TrainV1) else super().variables()


def restore_numbers(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    """Take 0-d state again as it was saved, where torch cast it.

    torch casts floating-point state to the parameter's dtype; in float16 a product of
    many factors (NAdam's) would go on from another number.
    """
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    numbers = [k for group in saved["param_groups"] for k in group["params"]]
    for parameter, number in zip(parameters, numbers, strict=True):
        for key, value in saved["state"].get(number, {}).items():
            slot = optimizer.state[parameter][key]
            if isinstance(value, Tensor) and slot.dtype != value.dtype:
                if value.dim() == 0 < parameter.dim():
                    restored = value.to(slot.device, copy=True)
                    optimizer.state[parameter][key] = restored


def needs_closure(optimizer: Optimizer) -> bool:
    """Say whether ``step`` insists on a closure, which it then calls several times."""
    parameters = inspect.signature(optimizer.step).parameters
    closure = parameters.get("closure")
    return closure is not None and closure.default is inspect.Parameter.empty
