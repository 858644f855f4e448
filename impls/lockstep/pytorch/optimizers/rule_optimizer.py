"""The base of the TF1 optimizers: a :class:`torch.optim.Optimizer` with one rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from lockstep.messages import pytorch as words
from lockstep.messages.optimizers.parameters import OptimizerSpec, Slot
from lockstep.pytorch.base.foreign_state import check_mapping
from lockstep.pytorch.base.gradients import (
    check_group,
    named_parameters,
    refuse_sharded,
    require_split_alike,
)
from lockstep.pytorch.base.not_traced import untraced
from lockstep.pytorch.base.train_v1 import TrainV1, evaluate
from lockstep.pytorch.base.trial_step import check_bare
from lockstep.pytorch.optimizers.rate_names import (
    TORCH_NAMES,
    as_number,
    with_torch_names,
)
from lockstep.pytorch.optimizers.rules import Shared, Slots, filled_like, in_pieces
from lockstep.pytorch.tensors import foreach, shards
from lockstep.pytorch.tensors.rounding import rounded
from lockstep.pytorch.tensors.zero_test import is_all_zero
from lockstep.quirks import quirks_of

__all__ = ["RuleOptimizer"]

Group = dict[str, Any]


class RuleOptimizer(TrainV1, Optimizer):
    """An optimizer with slots that applies one rule of the folder ``rules``.

    The learning rate is ``lr`` in the groups, as torch's schedulers expect. The other
    hyper-parameters keep their TF names, and each group may have its own values. As in
    TF1, slots are created before the first step; a frozen parameter gets its slots at
    its first update. The powers of beta are numbers in the groups. They advance
    together, once per step with gradients.

    Hyper-parameters and gradients are cast to ``working_dtype`` before any arithmetic,
    and slots have this dtype. A half-precision parameter is rounded once, at the end.
    """

    spec: ClassVar[OptimizerSpec]
    rule: ClassVar[ModuleType]
    sums_duplicates: ClassVar[bool] = True
    _cpu_run: ClassVar[int] = foreach.CPU_RUN
    """On the CPU, the approximate number of elements per call of the rule."""
    _cpu_piece: ClassVar[int | None] = 1 << 18
    """On the CPU, larger tensors are split into pieces of this size per thread.

    None means that they are not split.
    """

    def __init__(
        self,
        params: ParamsT,
        arguments: dict[str, Any],
        name: str | None = None,
        strict: bool = False,
    ) -> None:
        if name == "":
            raise words.EMPTY_NAME.error(owner=self.spec.class_name)
        self.name = name or self.spec.name
        self.strict, self._quirks = strict, quirks_of(strict)
        self.ignores_zeros = False
        self._policies: dict[tuple[int, torch.dtype], tuple[list[Any], Any]] = {}
        super().__init__(params, with_torch_names(arguments))

    def __getstate__(self) -> dict[str, Any]:
        own = {key: getattr(self, key) for key in ("name", "strict", "ignores_zeros")}
        return {**super().__getstate__(), **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._quirks = quirks_of(vars(self).get("strict", False))
        self._policies = {}

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, check its hyper-parameters and create its slots.

        Raises:
            TypeError: ``param_group`` is no group of parameters.
            ValueError: a hyper-parameter is out of range.
        """
        check_group(self.spec.class_name, param_group)
        group = with_torch_names(param_group)
        bound = self.arguments({**self.defaults, **group})
        self.spec.bind((), {name: as_number(value) for name, value in bound.items()})
        super().add_param_group(group)
        for power, beta in (self.spec.shared or {}).items():
            group.setdefault(power, rounded(bound[beta], torch.float32))
        for parameter in group["params"]:
            if parameter.requires_grad:
                self.state[parameter] = self.initial_slots(group, parameter)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state from ``state_dict``.

        Raises:
            ValueError: no state, or another optimizer's state; nothing is changed.
        """
        owner, state = self.spec.class_name, {}
        check_mapping(owner, state_dict)

        def check(_: Optimizer, saved: dict[str, Any]) -> None:
            check_bare(owner, saved, self)
            state.update(saved)

        # The last hook, so it checks the state after all other hooks changed it.
        last = self.register_load_state_dict_pre_hook(check)
        try:
            super().load_state_dict(state_dict)
        finally:
            last.remove()
        self.after_loading(state)

    def after_loading(self, state_dict: dict[str, Any]) -> None:
        """Restore slots that torch cast to half precision while loading.

        Slots that were saved in half precision are widened.
        """
        saved = state_dict["state"]
        numbers = [k for group in state_dict["param_groups"] for k in group["params"]]
        parameters = [p for group in self.param_groups for p in group["params"]]
        for parameter, number in zip(parameters, numbers, strict=True):
            for slot in self.spec.slots if number in saved else ():
                dtype = self.slot_dtype(slot, parameter.dtype)
                casts = slot.scalar or dtype != parameter.dtype
                if casts and slot.name in saved[number]:
                    value = saved[number][slot.name].detach()
                    value = value.to(parameter.device, dtype, copy=True)
                    self.state[parameter][slot.name] = value

    @untraced
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a ``.grad``, then the shared powers.

        Args:
            closure: recomputes the loss and its gradients before the update.

        Returns:
            The result of ``closure``, or None without one.
        """
        loss = None if closure is None else evaluate(closure)
        ready = [
            (group, [p for p in group["params"] if p.grad is not None])
            for group in self.param_groups
        ]
        for group, parameters in ready:
            self.check(group, parameters)
        for group, parameters in ready:
            if self.ignores_zeros:
                parameters = [p for p in parameters if not self._sees_zero(p.grad)]
            self.update(group, parameters)
        if any(parameters for _, parameters in ready):
            self.advance_shared()
        return loss

    def _sees_zero(self, gradient: Tensor) -> bool:
        """Return the result of the original's zero test of a gradient.

        The original tested only summed rows. So an optimizer that does not sum
        duplicates (gradient descent) never tests sparse gradients.
        """
        tested = self.sums_duplicates or not gradient.is_sparse
        return tested and is_all_zero(gradient, quirks_of(True).multitask_subnormals)

    def check(self, group: Group, parameters: Sequence[Tensor]) -> None:
        """Raise if the rule cannot be applied, before anything changes."""
        owner = self.spec.class_name
        if self.strict:
            refuse_sharded(owner, parameters, "strict=True")
        if shards.are_among(parameters):
            pairs = [(parameter.grad, parameter) for parameter in parameters]
            require_split_alike(owner, pairs, named_parameters(self))
        for parameter in parameters:
            gradient = parameter.grad
            if not parameter.is_floating_point():
                raise words.UNSUPPORTED_DTYPE.error(
                    owner=owner, dtype=str(parameter.dtype)
                )
            if gradient.is_sparse and gradient.sparse_dim() != 1:
                raise words.ROWS_ONLY.error(
                    owner=owner,
                    name=named_parameters(self)[parameter],
                    sparse_dim=gradient.sparse_dim(),
                )

    def update(self, group: Group, parameters: Sequence[Tensor]) -> None:
        """Apply the rule to parameters of a group, many dense gradients at a time."""
        for positions in foreach.runs(parameters, self._cpu_run):
            run = [parameters[k] for k in positions]
            self.update_run(group, run, self._kept_policy(group, run[0].dtype))

    def _kept_policy(self, group: Group, dtype: torch.dtype) -> Any:
        """Return :meth:`policy` from a cache while no hyper-parameter changes.

        A tensor may change in place, so a policy with a tensor is never cached.
        """
        numbers = list(self.arguments(group).values())
        if any([isinstance(number, Tensor) for number in numbers]):
            return self.policy(group, dtype)
        kept = self._policies.get((id(group), dtype))
        if kept is None or kept[0] != numbers:
            kept = self._policies[id(group), dtype] = numbers, self.policy(group, dtype)
        return kept[1]

    def update_run(self, group: Group, run: Sequence[Tensor], policy: Any) -> None:
        """Apply the rule to parameters of one device and dtype, in place."""
        shared, dtype = self.shared(group), self.working_dtype(run[0].dtype)
        dense: list[tuple[Tensor, Slots, Tensor]] = []
        for parameter in run:
            slots, gradient = self.state.get(parameter), parameter.grad
            if slots is None:
                slots = self.slots(group, parameter)
            if gradient.dtype != dtype:
                gradient = gradient.to(dtype)
            if gradient.is_sparse:
                self.rule.update_rows(policy, shared, parameter, slots, gradient)
            else:
                dense.append((parameter, slots, gradient))
        if dense:
            self._update_dense(policy, shared, *zip(*dense, strict=True))

    def _update_dense(
        self,
        policy: Any,
        shared: Shared,
        parameters: Sequence[Tensor],
        slots: Sequence[Slots],
        gradients: Sequence[Tensor],
    ) -> None:
        """Apply the rule to dense gradients; for DTensors, to this rank's parts."""
        if shards.are_among(parameters):
            gradients = shards.parts_of(shards.split_alike(gradients, parameters))
            slots = [
                dict(zip(slot, shards.parts_of(slot.values()), strict=True))
                for slot in slots
            ]
            parameters = shards.parts_of(parameters)
        pieces = in_pieces(parameters, slots, gradients, self._cpu_piece)
        for piece in pieces:
            self.rule.update_dense(policy, shared, *piece)

    def slots(self, group: Group, parameter: Tensor) -> Slots:
        """Return the slots of a parameter; create them if it was frozen until now."""
        slots = self.state.get(parameter)
        if slots is None:
            slots = self.state[parameter] = self.initial_slots(group, parameter)
        return slots

    def working_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of the rule's arithmetic: at least float32.

        Strict: ``dtype`` itself.
        """
        own = self._quirks.half_precision_scalars
        return dtype if own else torch.promote_types(dtype, torch.float32)

    def policy(self, group: Group, dtype: torch.dtype) -> Any:
        """Return the rule's hyper-parameters for ``dtype``, as 0-d tensors."""
        arguments, dtype = self.arguments(group), self.working_dtype(dtype)
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                arguments[name] = value.to(dtype)
            elif not isinstance(value, bool):
                number = rounded(value, dtype)
                arguments[name] = torch.tensor(number, dtype=dtype, device="cpu")
        return self.rule.Policy(**arguments)

    def arguments(self, group: Group) -> dict[str, Any]:
        """Return the hyper-parameters of a group under their TF names."""
        return {
            parameter.name: group[TORCH_NAMES.get(parameter.name, parameter.name)]
            for parameter in self.spec.parameters
        }

    def initial_slots(self, group: Group, parameter: Tensor) -> Slots:
        """Return new slots for a parameter, filled with their initial values."""
        arguments = self.arguments(group)
        return {
            slot.name: filled_like(
                parameter,
                self.spec.initial_value(slot, arguments),
                slot.scalar,
                self.slot_dtype(slot, parameter.dtype),
            )
            for slot in self.spec.active_slots(arguments)
        }

    def slot_dtype(self, slot: Slot, dtype: torch.dtype) -> torch.dtype:
        """Return the dtype of a slot of a parameter of ``dtype``."""
        if slot.scalar:
            return torch.promote_types(dtype, torch.float32)
        return self.working_dtype(dtype)

    def shared(self, group: Group) -> dict[str, float]:
        """Return the powers of beta of a group."""
        return {name: group[name] for name in self.spec.shared or {}}

    def advance_shared(self) -> None:
        """Multiply each shared power by its beta, in float32."""
        for group in self.param_groups:
            for name, beta in (self.spec.shared or {}).items():
                factor = rounded(group[beta], torch.float32)
                group[name] = rounded(group[name] * factor, torch.float32)

    def get_name(self) -> str:
        """Return the constructor's ``name``, or the rule's default name."""
        return self.name

    def variables(self) -> list[Tensor]:
        """Return the slots, then the shared powers as 0-d float32 tensors."""
        shared = self.shared(self.param_groups[0]).values()
        options = {"dtype": torch.float32, "device": "cpu"}
        powers = [torch.tensor(power, **options) for power in shared]
        return [*super().variables(), *powers]
