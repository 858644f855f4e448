"""The multitask wrapper: a parameter whose gradient is all zero is left alone."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from contextlib import nullcontext, suppress
from ctypes import c_float
from itertools import compress
from operator import not_, or_
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.errors import NotAnOptimizerError
from lockstep.interface import NO_GRADIENTS, NO_STEP, StepReport
from lockstep.pipeline import base_of
from lockstep.pytorch import foreach, shards
from lockstep.pytorch.fused import make_momentum
from lockstep.pytorch.gradients import gradients_set_to, name_in, named_parameters
from lockstep.pytorch.norms import finite_flags, magnitudes, sum_duplicates
from lockstep.pytorch.wrapper import OptimizerWrapper, require_optimizer

OWNER = "MultitaskOptimizerWrapper"

# On the CPU, gradients of up to SMALL elements are read whole, those of one shape
# together. Larger ones are read in growing chunks until an element is not zero.
SMALL, GROWTH = 1 << 12, 1 << 4
SAMPLES, TINY, FEW = 8, 1 << 8, 32
"""About ``SAMPLES`` elements of a gradient are read before all of it. If there are more
than ``FEW`` gradients, those of up to ``TINY`` elements are read together instead."""
FLOAT, SHOWN = torch.float32, nullcontext()


class MultitaskOptimizerWrapper(OptimizerWrapper):
    """Skip the update of a parameter and its state if its gradient is all zero.

    For each parameter w with gradient g and state s:

        any(g != 0):  w, s = opt(w, s, g)
        otherwise:    w and s keep every bit, as if g were None

    So a head of a model keeps its weights and its moments while no batch has its task,
    and weight decay or momentum do not move it. -0.0 is zero, NaN and infinity are not.
    The duplicate rows of a sparse gradient are summed before the test.

    During the step of ``opt``, ``.grad`` is ``None`` for such a parameter; afterwards
    the gradient is restored. Per-parameter step counts do not advance either. If no
    gradient is left to apply, ``opt`` takes no step. ``last_step`` reports the step; it
    counts gradients that are not finite if it is read before they are cleared.

    Args:
        opt: any optimizer of torch, a wrapper included.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no optimizer of torch.
        ValueError: ``opt`` needs its closure several times a step (LBFGS).

    Cost: one element of each gradient is read, in one host sync. Only gradients that
    begin with a zero are read further.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.MultitaskOptimizerWrapper``.

    Example:
        >>> body, head = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        >>> sgd = torch.optim.SGD([body, head], lr=0.25, momentum=0.5)
        >>> optimizer = MultitaskOptimizerWrapper(sgd)
        >>> (body.sum() + 0 * head.sum()).backward()
        >>> optimizer.step()
        >>> body.tolist(), head.tolist(), head in sgd.state
        ([0.75, 0.75], [1.0, 1.0], False)
        >>> optimizer.last_step.reason
        'of 2 gradients 1 all zero'
    """

    _parameters: Sequence[Tensor] | None = None
    """The parameters of the last step, None before the first step."""
    _zero: Sequence[bool] = ()
    _absent: Sequence[bool] = ()
    _gradients: tuple[list[Any], list[int]] = [], []
    """Weak references to the gradients that were present, and their versions."""
    _reached_inner = False
    _divides_inside = True

    def __init__(self, opt: Optimizer) -> None:
        require_optimizer(OWNER, opt, NotAnOptimizerError)
        super().__init__(opt)

    def step_inner(self) -> None:
        """Take the step of ``opt`` without all-zero gradients."""
        inner = self.inner_optimizer
        parameters = [p for group in inner.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters]
        absent = [gradient is None for gradient in gradients]
        if any(absent):
            # Frozen parameters are not reported. They may be trained later.
            is_frozen = [p.grad is None and not p.requires_grad for p in parameters]
            parameters = list(compress(parameters, map(not_, is_frozen)))
            absent = [p.grad is None for p in parameters]
            gradients = [gradient for gradient in gradients if gradient is not None]
        limit = 0.0
        if self._undivided_by != 1:
            # The largest |g| whose quotient is rounded to 0, which is up to 2^-150.
            limit = math.floor(self._undivided_by / 2) * 2.0**-149
        flags = iter(zero_flags(gradients, limit))
        zero = [not is_absent and next(flags) for is_absent in absent]
        zeros = list(compress(parameters, zero))
        self._zero, self._absent, self._parameters = zero, absent, parameters
        self._reached_inner = len(zeros) < len(gradients)
        if self._reached_inner:
            hiding = gradients_set_to(zeros, [None] * len(zeros)) if zeros else SHOWN
            with hiding:
                # Parameters may have a gradient now and have no state.
                make_momentum(base_of(self))
                inner.step()
        elif zeros and self._only_wants_state(zeros):
            inner.step()
        else:
            super().note_no_gradients()
        if limit and zeros:
            # opt did not divide these, but no caller should see them multiplied.
            with torch.no_grad():
                foreach.zero([p.grad for p in zeros])
        self._gradients = list(map(ref, gradients)), [g._version for g in gradients]

    def note_no_gradients(self) -> None:
        self._parameters = self._zero = self._absent = ()
        super().note_no_gradients()

    @property
    def last_step(self) -> StepReport:
        """The report of the last step.

        Non-finite gradients are counted while the gradients of the step are there,
        unchanged. Then reading the report reads them all.
        """
        if self._parameters is None:
            return NO_STEP
        if all(self._absent):
            return NO_GRADIENTS
        names, parameters = named_parameters(self), self._parameters
        left_out = map(or_, self._zero, self._absent)
        skipped = tuple(name_in(names, p) for p in compress(parameters, left_out))
        counts = {
            "all zero": sum(self._zero),
            "absent": sum(self._absent),
            "not finite": count_nonfinite(*self._gradients),
        }
        parts = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        reason = "every gradient had a nonzero element"
        if parts:
            reason = f"of {len(parameters)} gradients {parts}"
        report = StepReport(len(skipped) < len(parameters), reason, skipped)
        inner = self.inner_optimizer if self._reached_inner else None
        inner_report = getattr(inner, "last_step", None)
        if inner_report is None or inner_report.applied:
            return report
        reason = f"{reason}; {inner_report.reason}"
        return inner_report._replace(reason=reason, skipped=tuple(names.values()))


def count_nonfinite(references: list[Any], versions: list[int]) -> int:
    """Return how many gradients are not finite; 0 if one was cleared or changed."""
    gradients = [reference() for reference in references]
    if [getattr(gradient, "_version", None) for gradient in gradients] != versions:
        return 0
    return finite_flags([g for g in gradients if not g.is_complex()]).count(False)


def zero_flags(gradients: Sequence[Tensor], limit: float = 0.0) -> list[bool]:
    """Return, for each gradient, whether |g| <= ``limit`` for all its elements."""
    if shards.are_among(gradients):
        whole = shards.added_up(gradients)
        return shards.all_ranks(zero_flags(shards.parts_of(whole)), whole)
    # If one element is not zero, the gradient is not, and need not be read.
    heads = first_elements(gradients)
    if not limit and 0.0 not in heads:  # -0.0 equals 0.0, and NaN does not.
        return [False] * len(gradients)
    suspected = [abs(head) <= limit for head in heads]
    flags = iter(all_zero(list(compress(gradients, suspected)), limit))
    return [is_suspected and next(flags) for is_suspected in suspected]


def first_elements(gradients: Sequence[Tensor]) -> list[Any]:
    """Return one element of each gradient, or 0 if it has to be read as a whole."""
    # Reading memory takes less time than making a tensor of one element.
    with suppress(RuntimeError):  # Sparse gradients have no address.
        starts = [g.data_ptr() for g in gradients if g.dtype is FLOAT and g.is_cpu]
        if len(starts) == len(gradients):
            return [c_float.from_address(at).value if at else 0.0 for at in starts]
    heads: list[Any] = [0.0] * len(gradients)
    dense: dict[torch.device, list[int]] = defaultdict(list)
    for position, gradient in enumerate(gradients):
        if not gradient.is_sparse and gradient.numel():
            dense[gradient.device].append(position)
    for positions in dense.values():
        views = [gradients[k].as_strided((1,), (1,)) for k in positions]
        for position, head in zip(positions, torch.cat(views).tolist(), strict=True):
            heads[position] = head
    return heads


def all_zero(gradients: Sequence[Tensor], limit: float) -> list[bool]:
    """Do as :func:`zero_flags`, by reading all; those of a device or shape at once."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    flags, are_few = [False] * len(gradients), len(gradients) <= FEW
    for position, gradient in enumerate(gradients):
        key: Hashable = gradient.device
        if gradient.is_cpu:
            is_worth_it = are_few or gradient.numel() > TINY
            if is_worth_it and has_nonzero_sample(gradient, limit):
                continue
            is_small = not gradient.is_sparse and 0 < gradient.numel() <= SMALL
            is_small = is_small and not gradient.is_complex()
            key = (gradient.shape, gradient.dtype) if is_small else position
        groups[key].append(position)
    for positions in groups.values():
        some = [gradients[k] for k in positions]
        if not some[0].is_cpu:
            answers = (magnitudes(some) <= limit).tolist()
        elif len(some) == 1:
            answers = [is_all_zero(some[0], limit)]
        else:
            rows = torch.stack(some).reshape(len(some), -1)
            answers = ((rows.amin(1) >= -limit) & (rows.amax(1) <= limit)).tolist()
        for position, answer in zip(positions, answers, strict=True):
            flags[position] = answer
    return flags


def has_nonzero_sample(gradient: Tensor, limit: float) -> bool:
    """Whether some elements show that a gradient, maybe behind a ReLU, is not zero."""
    is_float = not gradient.is_sparse and gradient.dtype is FLOAT
    if not is_float or not gradient.is_contiguous():
        return False
    start, size = gradient.data_ptr(), gradient.numel()
    for place in range(size - 1, 0, -(size // SAMPLES + 1)):
        element = c_float.from_address(start + 4 * place).value
        if not abs(element) <= limit:  # In this form, NaN is not zero either.
            return True
    return False


def is_all_zero(gradient: Tensor, limit: float) -> bool:
    """Whether |g| <= ``limit`` for all elements, with duplicate rows summed."""
    values = sum_duplicates(gradient).values if gradient.is_sparse else gradient
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    # In the order of memory, as reshape would first copy a channels_last gradient.
    axes = sorted(range(values.dim()), key=values.stride, reverse=True)
    values = values.permute(axes).reshape(-1)
    start, size = 0, SMALL
    while start < values.numel():
        low, high = values[start : start + size].aminmax()
        # In this form, NaN is not zero either.
        if not (low.item() >= -limit and high.item() <= limit):
            return False
        start, size = start + size, size * GROWTH
    return True
