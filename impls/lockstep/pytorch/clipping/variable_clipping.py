"""The row-clipping wrapper, for PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.docstrings import documented
from lockstep.errors import warn_user
from lockstep.interface import NO_GRADIENTS, NO_STEP, StepReport
from lockstep.messages import pytorch as torch_host
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.clipping import refusals
from lockstep.messages.clipping import variable_clipping as words
from lockstep.messages.masters import refusals as masters_refusals
from lockstep.messages.nouns import PYTORCH
from lockstep.messages.step import numbers as tags
from lockstep.messages.workers.agn import refuse_row_clipping_around
from lockstep.pytorch.base.gradients import name_in, named_parameters
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.clipping.row_writing import (
    NamedRows,
    clip_in_place,
    counted,
    subtract_excess,
)
from lockstep.pytorch.tensors import shards
from lockstep.quirks import quirks_of

__all__ = ["VariableClippingOptimizer", "remove_limits"]


class Clipped(NamedTuple):
    """The clipped rows of one parameter, stored until ``last_step`` is read."""

    indices: Tensor | None
    too_large: Tensor


@documented
class VariableClippingOptimizer(OptimizerWrapper):
    """After each step, hold the norm of a parameter's rows to a limit.

    ...

    With a sparse gradient, the cost grows with the batch and not with the table.
    Clipping runs after the step and outside of autograd, so a forward pass may use a
    table several times. A parameter with a gradient of zeros is clipped too, but one
    whose gradient is None is not. ``last_step`` reports what a step did.

    Args:
        opt: any torch optimizer, a wrapper included. If it was made from
            ``named_parameters``, the keys of ``vars_to_clip_dims`` may be names.

    Raises:
        ...
        ValueError: a listed parameter is in no group, ``opt`` trains it through a
            master, or ``opt`` is differentiable or calls its closure several times a
            step (LBFGS).

    Cost: one read and one write of the rows that the gradient names. A norm over axis 0
    needs all rows, so the whole parameter is read; a sparse gradient then causes a
    warning.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.VariableClippingOptimizer``. Unlike
    ``torch.nn.Embedding(max_norm=...)`` it changes nothing in the forward pass.

    Example:
        >>> table = torch.nn.Embedding(3, 2, sparse=True)
        >>> _ = torch.nn.init.constant_(table.weight, 4.0)
        >>> sgd = torch.optim.SGD(table.named_parameters(), lr=1.0)
        >>> optimizer = VariableClippingOptimizer(sgd, {"weight": [1]}, max_norm=2.5)
        >>> (table(torch.tensor([1, 1])) * torch.tensor([0.5, 0.0])).sum().backward()
        >>> optimizer.step()
        >>> table.weight.tolist()
        [[4.0, 4.0], [1.5, 2.0], [4.0, 4.0]]
        >>> optimizer.last_step.reason
        'every gradient was present; 1 of 1 rows clipped'
    """

    _divides_inside = True

    _seen: tuple[list[Tensor], list[bool], list[Clipped]] | None = None
    _had_gradients = False
    _used_up = False

    def __init__(
        self,
        opt: Optimizer,
        vars_to_clip_dims: Mapping[Tensor | str, Iterable[int]],
        max_norm: float | Mapping[Tensor | str, float],
        use_locking: bool = False,
        colocate_clip_ops_with_vars: bool = False,
        name: str = "VariableClipping",
        strict: bool = False,
    ) -> None:
        if not isinstance(opt, Optimizer):
            raise not_an_optimizer(words.WRAPPER, opt, PYTORCH)
        if any(group.get("differentiable") for group in opt.param_groups):
            got = type(base_of(opt)).__name__
            raise torch_host.DIFFERENTIABLE_ROWS.error(got=got)
        words.check_name(name)
        words.require_mapping(vars_to_clip_dims)
        names = named_parameters(opt)
        keys = {key: names.get(key) or shown(key) for key in vars_to_clip_dims}
        quirks = quirks_of(strict)
        limits = words.limits_of(max_norm, keys, quirks.row_clip_range)
        listed: dict[Tensor, words.Axes] = {}
        for key, dims in vars_to_clip_dims.items():
            refuse_master(opt, key, names)
            parameter = parameter_of(key, names, quirks.arguments_unchecked)
            if parameter in listed:
                raise refusals.LISTED_TWICE.error(name=names[parameter])
            parameter_name = names.get(parameter, "a parameter")
            axes = words.listed_axes(parameter_name, dims)
            if not quirks.row_clip_axes:
                axes = words.resolved_axes(parameter_name, axes, parameter.dim())
            listed[parameter] = words.Axes.of(axes, limits[key])
        if not quirks.arguments_unchecked:
            refuse_row_clipping_around(opt)
        self.strict, self._quirks = strict, quirks
        super().__init__(opt)
        refuse_split_rows(listed, names)
        self.vars_to_clip_dims = listed
        self.max_norm = max_norm
        self.name = name

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._quirks = quirks_of(vars(self).get("strict", False))

    def _refuse_masters(self, inner_optimizer: Optimizer) -> None:
        """Accept masters here: the constructor has checked the listed parameters."""

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Tensor | None, Tensor]],
        global_step: Tensor | None = None,
        name: str | None = None,
    ) -> None:
        """Take one ``step()`` with these gradients: see the base class."""
        uses_up = self._quirks.row_clip_iterator
        self._used_up = uses_up and isinstance(grads_and_vars, Iterator)
        try:
            super().apply_gradients(grads_and_vars, global_step, name)
        finally:
            del self._used_up

    def clip(self, touched: Mapping[Tensor, Tensor | None]) -> list[Clipped]:
        """Clip parameters in place: all of each, or the rows that are listed for it."""
        with torch.no_grad():
            return [self._clip_one(w, indices) for w, indices in touched.items()]

    def _clip_one(self, parameter: Tensor, indices: Tensor | None) -> Clipped:
        """Clip a parameter, or its rows [k].

        Under strict, axes are not resolved, so only a literal 0 counts as axis 0.
        """
        axes = self.vars_to_clip_dims[parameter]
        if indices is not None and 0 in axes:
            name = named_parameters(self)[parameter]
            warn_user(words.whole_variable(name, axes))
            indices = None
        entry = NamedRows(shards.part_of(parameter), indices, axes)
        if self._quirks.row_clip_subtracted:
            return Clipped(indices, subtract_excess(entry, self._quirks))
        return Clipped(indices, clip_in_place(entry))

    def step_inner(self) -> None:
        """Take the step of the wrapped optimizer, then clip."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        without = [p.grad is None for p in parameters]
        present, absent = parameters, without
        if any(without):
            present = [
                p for p, gone in zip(parameters, without, strict=True) if not gone
            ]
            absent = [
                gone and p.requires_grad
                for p, gone in zip(parameters, without, strict=True)
            ]
        # Parameters are compared by id, because the hash of a tensor is slow.
        keys = () if self._used_up else {id(p) for p in self.vars_to_clip_dims}
        touched = {p: named_rows(p.grad) for p in present if id(p) in keys}
        if self._quirks.row_clip_axes:
            self._check_axes(touched)
        if self._only_wants_state(present):
            touched = {}
        self.inner_optimizer.step()
        self._seen = parameters, absent, self.clip(touched)
        self._had_gradients = bool(present)

    def note_no_gradients(self) -> None:
        """Record a step without gradients: see the base class."""
        self._had_gradients, self._seen = False, ([], [], [])
        super().note_no_gradients()

    def _check_axes(self, parameters: Iterable[Tensor]) -> None:
        """Raise if a parameter lacks one of its axes; strict checks this late."""
        names = named_parameters(self)
        for parameter in parameters:
            axes = self.vars_to_clip_dims[parameter]
            words.resolved_axes(names[parameter], axes, parameter.dim())

    @property
    def last_step(self) -> StepReport:
        """The report of the last step. Reading it costs a host sync."""
        if self._seen is None:
            return NO_STEP
        if not self._had_gradients:
            return NO_GRADIENTS
        parameters, absent, _ = self._seen
        names = named_parameters(self)
        return words.report(
            getattr(self.inner_optimizer, "last_step", None),
            [name_in(names, parameter) for parameter in parameters],
            absent,
            *self._counts(),
        )

    def _counts(self) -> tuple[int, int]:
        """Return how many rows the last step checked, and how many it clipped."""
        counts = [counted(*entry) for entry in self._seen[2]] if self._seen else []
        return sum(rows for rows, _ in counts), sum(clipped for _, clipped in counts)

    def step_numbers(self) -> dict[str, float]:
        """Return the numbers of the last step, and its rows: see the base class."""
        rows, clipped = self._counts()
        counts = {tags.ROWS: rows, tags.CLIPPED_ROWS: clipped}
        return {**super().step_numbers(), **counts}

    def get_name(self) -> str:
        """Return the constructor's ``name``."""
        return self.name

    def variables(self) -> list[Tensor]:
        """Return the state of ``opt``; the wrapper has none."""
        return [] if self._quirks.row_clip_variables else super().variables()


def refuse_split_rows(
    listed: Mapping[Tensor, words.Axes], names: Mapping[Tensor, str]
) -> None:
    """Raise for a DTensor if a norm would need the parts of several ranks."""
    for parameter, axes in listed.items():
        if split := shards.split_axes(parameter) & set(axes):
            raise torch_host.SPLIT_ROWS.error(
                axes=list(axes), name=names[parameter], split=sorted(split)
            )


def refuse_master(opt: Optimizer, key: Any, names: Mapping[Tensor, str]) -> None:
    """Raise for a parameter, or a name, that ``opt`` trains through a master."""
    if not getattr(opt, "trains_masters", False):
        return
    by_name = {name: parameter for parameter, name in names.items()}
    parameter = by_name.get(key) if isinstance(key, str) else key
    if isinstance(parameter, Tensor) and opt.trains_master(parameter):
        raise masters_refusals.CLIPS_OUTSIDE.error(name=names[opt.master(parameter)])


def parameter_of(key: Any, names: Mapping[Tensor, str], unchecked: bool) -> Tensor:
    """Return the parameter for a key of ``vars_to_clip_dims``.

    With ``unchecked``, a parameter that is in no group is accepted, without effect.
    """
    if isinstance(key, Tensor):
        if key not in names and not unchecked:
            raise words.unknown_variable(shown(key), names.values())
        return key
    if not isinstance(key, str):
        raise refusals.NOT_A_KEY.error(nouns=PYTORCH, got=type(key).__name__)
    named = [parameter for parameter, name in names.items() if name == key]
    if len(named) > 1:
        raise refusals.SEVERAL_VARIABLES.error(
            name=key, keys="use the parameters themselves as keys"
        )
    if not named:
        remedy = "make the optimizer of model.named_parameters(), which has names"
        raise words.unknown_variable(key, names.values(), remedy)
    return named[0]


def shown(key: Any) -> str:
    """Return a short text for a key, without the elements of a tensor."""
    # To print them would wait for a GPU, and torch may fail to under autocast.
    is_tensor = isinstance(key, Tensor)
    return f"a tensor of shape {list(key.shape)}" if is_tensor else f"{key!s:.40}"


def remove_limits(optimizer: Any) -> None:
    """Remove the limits of every row-clipping wrapper in a stack."""
    while optimizer is not None:
        if isinstance(optimizer, VariableClippingOptimizer):
            optimizer.vars_to_clip_dims.clear()
        optimizer = getattr(optimizer, "inner_optimizer", None)


def named_rows(gradient: Tensor) -> Tensor | None:
    """Return the [k] row indices of a sparse gradient, duplicates included, or None.

    A dense gradient gives None. If an index has several dimensions, the first one is
    the row.
    """
    is_sparse = gradient.is_sparse and gradient.sparse_dim() > 0
    return gradient._indices()[0] if is_sparse else None
