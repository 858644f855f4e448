"""The base of the optimizers of TensorFlow 1: groups, slots, states and the step."""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from lockstep.checks import number_of, require, with_full_name
from lockstep.errors import DtypeError, NotASequenceError, UnsupportedError
from lockstep.interface import GATE_GRAPH, GATE_NONE, GATE_OP
from lockstep.optimizers import OptimizerSpec
from lockstep.pytorch import foreach, gradients, shards
from lockstep.pytorch.foreach import rounded
from lockstep.pytorch.gradients import named_parameters
from lockstep.pytorch.norms import sum_duplicates

TORCH_NAMES = {"learning_rate": "lr"}
"""Name of a hyper-parameter -> its name in parameter groups."""

Group = dict[str, Any]
Hyper = Mapping[str, Any]
"""Hyper-parameters and powers of beta by their TF names, in the dtype of the slots."""
Tensors = Sequence[Tensor]
Slots = Mapping[str, Tensors]
"""TF slot name -> the slots of some parameters."""
Row = Mapping[str, Tensor]
"""TF slot name -> the slot of one parameter."""
Init = TypeVar("Init", bound=Callable[..., None])


def constructor(init: Init) -> Init:
    """Make a constructor of a rule from its signature; it also accepts ``lr``."""
    signature = inspect.signature(init)

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **given: Any) -> None:
        owner, first = self.spec.class_name, args[0] if args else given.get("params")
        if isinstance(first, numbers.Number):
            raise NotASequenceError(
                f"{owner}: params: expected the parameters, or groups of them, got "
                f"{first!r}; put model.parameters() first, and TensorFlow's arguments "
                "after it."
            )
        given = with_full_name(owner, given)
        bound = signature.bind(self, *args, **given)
        bound.apply_defaults()
        names = [parameter.name for parameter in self.spec.parameters]
        hyper = {name: bound.arguments[name] for name in names}
        params, name = bound.arguments["params"], bound.arguments["name"]
        RuleOptimizer.__init__(self, params, name, hyper)

    return cast(Init, construct)


class RuleOptimizer(Optimizer):
    """An optimizer with slots that applies one rule of TensorFlow 1.

    As in TF1, slots are created before the first step; a frozen parameter gets its
    slots at its first update. The powers of beta advance together, once per step with
    gradients.
    """

    spec: ClassVar[OptimizerSpec]
    _rule: ClassVar[Callable[[Hyper, Tensors, Slots, Tensors], None]]
    """Updates tensors of one device and dtype, and their slots, in place."""
    _cpu_run: ClassVar[int] = foreach.CPU_RUN
    """On the CPU, the approximate number of elements per call of the rule."""
    _cpu_piece: ClassVar[int | None] = 1 << 18
    """On the CPU, so many elements a thread fit into the cache; None: no limit."""

    GATE_NONE, GATE_OP, GATE_GRAPH = GATE_NONE, GATE_OP, GATE_GRAPH
    compute_gradients = gradients.compute_gradients
    apply_gradients = gradients.apply_gradients
    minimize = gradients.minimize
    get_slot = gradients.get_slot
    get_slot_names = gradients.get_slot_names
    _for_step = False

    def __init__(self, params: ParamsT, name: str | None, hyper: Hyper) -> None:
        require(self.spec.class_name, "name", name, name != "", "a name or None")
        self.name = name or self.spec.name
        self._cached: dict[tuple[int, torch.dtype], tuple[list[Any], Hyper]] = {}
        super().__init__(params, with_torch_names(hyper))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "name": self.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._cached = {}

    def add_param_group(self, param_group: Group) -> None:
        """Add a group, check its hyper-parameters and create its slots.

        Raises:
            TypeError: ``param_group`` is no group of parameters.
            ValueError: a hyper-parameter is out of range.
        """
        group = param_group
        if isinstance(param_group, dict):  # Others are refused by torch.
            group = with_torch_names(param_group)
            self._check_hyper({**self.defaults, **group})
        super().add_param_group(group)
        for power, beta in (self.spec.shared or {}).items():
            group.setdefault(power, rounded(group[beta], torch.float32))
        for parameter in group["params"]:
            if parameter.requires_grad:
                self.state[parameter] = self.initial_slots(group, parameter)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state from ``state_dict``.

        Raises:
            ValueError: no state, or another optimizer's state; nothing is changed.
        """
        names = {TORCH_NAMES.get(p.name, p.name) for p in self.spec.parameters}
        for group in state_dict["param_groups"]:
            if missing := {*names, *(self.spec.shared or {})} - {*group}:
                raise UnsupportedError(
                    f"{self.spec.class_name}: expected a state_dict() of such an "
                    f"optimizer, got a group without {', '.join(sorted(missing))}; "
                    "load one."
                )
            self._check_hyper(group)
        super().load_state_dict(state_dict)
        # torch casts slots to the parameter's dtype, which may be a narrower one.
        saved = zip(self.param_groups, state_dict["param_groups"], strict=True)
        for own, group in saved:
            for parameter, number in zip(own["params"], group["params"], strict=True):
                dtype, slots = wide_dtype(parameter.dtype), state_dict["state"]
                if dtype != parameter.dtype and number in slots:
                    self.state[parameter] = {
                        name: slot.detach().to(parameter.device, dtype, copy=True)
                        for name, slot in slots[number].items()
                    }

    @torch._disable_dynamo
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a ``.grad``, then the powers of beta.

        Args:
            closure: recomputes the loss and its gradients before the update.

        Returns:
            The result of ``closure``, or None without one.
        """
        loss = None if closure is None else gradients.evaluate(closure)
        ready = [
            (group, [p for p in group["params"] if p.grad is not None])
            for group in self.param_groups
        ]
        for _, parameters in ready:
            self._check_gradients(parameters)
        for group, parameters in ready:
            for positions in foreach.runs(parameters, self._cpu_run):
                self._update(group, [parameters[k] for k in positions])
        powers = self.spec.shared if any(parameters for _, parameters in ready) else {}
        for group in self.param_groups:
            for name, beta in (powers or {}).items():
                factor = rounded(group[beta], torch.float32)
                group[name] = rounded(group[name] * factor, torch.float32)
        return loss

    def _update(self, group: Group, run: Tensors) -> None:
        """Apply the rule to parameters of one device and dtype, in place."""
        dtype = wide_dtype(run[0].dtype)
        hyper = self._hyper(group, dtype)
        names = [slot.name for slot in self.spec.active_slots(group)]
        dense: list[tuple[Tensor, dict[str, Tensor], Tensor]] = []
        for parameter in run:
            slots, gradient = self.state.get(parameter), parameter.grad
            if slots is None:
                slots = self.initial_slots(group, parameter)
                self.state[parameter] = slots
            if gradient.dtype != dtype:
                gradient = gradient.to(dtype)
            if gradient.is_sparse:
                own = {name: slots[name] for name in names}
                self._update_rows(hyper, parameter, own, gradient)
            else:
                dense.append((parameter, slots, gradient))
        if dense:
            weights, states, gradients = zip(*dense, strict=True)
            lists = {name: [slots[name] for slots in states] for name in names}
            self._update_dense(hyper, weights, lists, gradients)

    def _update_dense(
        self, hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors
    ) -> None:
        """Apply the rule to dense gradients; for DTensors, to this rank's parts."""
        if shards.are_among(weights):
            gradients = shards.parts_of(shards.split_alike(gradients, weights))
            slots = {name: shards.parts_of(slot) for name, slot in slots.items()}
            weights = shards.parts_of(weights)
        for piece in in_pieces(weights, slots, gradients, self._cpu_piece):
            self._rule(hyper, *piece)

    def _update_rows(
        self, hyper: Hyper, weight: Tensor, slots: Row, gradient: Tensor
    ) -> None:
        indices, rows = sum_duplicates(gradient)
        changed = {name: [slot[indices]] for name, slot in slots.items()}
        moved = weight[indices]
        self._rule(hyper, [moved], changed, [rows])
        weight[indices] = moved
        for name, (slot,) in changed.items():
            slots[name][indices] = slot

    def _hyper(self, group: Group, dtype: torch.dtype) -> Hyper:
        """Return the hyper-parameters and powers of a group for slots of ``dtype``."""
        arguments = self.arguments(group)
        given = list(arguments.values())
        if any([isinstance(value, Tensor) for value in given]):
            hyper = self._cast(arguments, dtype)  # Tensors may change in place.
        else:
            known, hyper = self._cached.get((id(group), dtype), (None, {}))
            if known != given:
                hyper = self._cast(arguments, dtype)
                self._cached[id(group), dtype] = given, hyper
        powers = self.spec.shared
        return {**hyper, **{name: group[name] for name in powers}} if powers else hyper

    def _cast(self, arguments: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        """Return numbers as 0-d tensors, each rounded once, and bools as they are."""
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                arguments[name] = value.to(dtype)
            elif not isinstance(value, bool):
                number = rounded(value, dtype)
                arguments[name] = torch.tensor(number, dtype=dtype, device="cpu")
        return arguments

    def arguments(self, group: Mapping[str, Any]) -> dict[str, Any]:
        """Return the hyper-parameters of a group under their TF names."""
        return {
            parameter.name: group[TORCH_NAMES.get(parameter.name, parameter.name)]
            for parameter in self.spec.parameters
        }

    def initial_slots(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        """Return new slots for a parameter, filled with their initial values."""
        arguments, dtype = self.arguments(group), wide_dtype(parameter.dtype)
        slots = {}
        for slot in self.spec.active_slots(arguments):
            value = rounded(self.spec.initial_value(slot, arguments), dtype)
            if slot.scalar:
                device = parameter.device
                new = torch.full((), value, dtype=dtype, device=device)
            else:
                new = torch.full_like(parameter.detach(), value, dtype=dtype)
            slots[slot.name] = new
        return slots

    def get_name(self) -> str:
        """Return the constructor's ``name``, or the rule's default name."""
        return self.name

    def took_step(self) -> bool:
        """Whether the last step counts for ``global_step``."""
        return True

    def _as_trained(self, pairs: gradients.Pairs) -> gradients.Pairs:
        """Return the pairs: only a wrapper trains other tensors than its caller's."""
        return pairs

    def _lend(self, is_lent: bool) -> None:
        """Do nothing: only a wrapper changes gradients, and not those of a caller."""

    def variables(self) -> list[Tensor]:
        """Return the slots, then the powers of beta as 0-d float32 tensors."""
        powers = [self.param_groups[0][name] for name in self.spec.shared or {}]
        numbers = torch.tensor(powers, dtype=torch.float32, device="cpu")
        return [*gradients.variables(self), *numbers.unbind()]

    def _check_hyper(self, group: Mapping[str, Any]) -> None:
        """Raise unless the hyper-parameters and powers of a group are in range."""
        plain = dict(self.arguments(group))
        for name, value in plain.items():
            if isinstance(value, Tensor) and not value.dim():
                plain[name] = value.item()
        self.spec.bind((), plain)
        for power in self.spec.shared or {}:
            value = group.get(power, 0)
            fine = 0 <= number_of(value) <= 1
            require(self.spec.class_name, power, value, fine, "a number in [0, 1]")

    def _check_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Raise if the rule cannot be applied, before anything changes."""
        owner = self.spec.class_name
        for parameter in parameters:
            if not parameter.is_floating_point():
                raise DtypeError(
                    f"{owner}: expected parameters of a real floating-point dtype, got "
                    f"{parameter.dtype}; use an optimizer of torch.optim."
                )
            gradient = parameter.grad
            if gradient.is_sparse and gradient.sparse_dim() != 1:
                raise UnsupportedError(
                    f"{owner}: expected a sparse gradient of rows for "
                    f"{named_parameters(self)[parameter]!r}, got one of "
                    f"{gradient.sparse_dim()} sparse dimensions; use to_dense()."
                )


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the rule's arithmetic and slots: at least float32."""
    return torch.promote_types(dtype, torch.float32)


def with_torch_names(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with ``lr`` for the rate, and without NumPy's numbers."""
    return {
        TORCH_NAMES.get(name, name): value.item()
        if isinstance(value, np.generic)
        else value
        for name, value in arguments.items()
    }


def in_pieces(
    weights: Tensors, slots: Slots, gradients: Tensors, size: int | None
) -> list[tuple[Tensors, Slots, Tensors]]:
    """Split one large contiguous tensor on the CPU into views, one a thread."""
    whole = [(weights, slots, gradients)]
    if size is None or len(weights) > 1 or not weights[0].is_cpu:
        return whole
    size *= torch.get_num_threads()
    tensors = [weights[0], gradients[0], *(slot for (slot,) in slots.values())]
    if weights[0].numel() <= size or not all([t.is_contiguous() for t in tensors]):
        return whole
    cut = [tensor.view(-1).split(size) for tensor in tensors]
    return [
        ([weight], {name: [slot] for name, slot in zip(slots, own, strict=True)}, [g])
        for weight, g, *own in zip(*cut, strict=True)
    ]
