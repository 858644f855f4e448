"""The multitask wrapper and its clipping function, for PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import wraps
from itertools import compress
from operator import or_
from types import MethodType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from lockstep.docstrings import documented
from lockstep.interface import NO_GRADIENTS, NO_STEP, StepReport
from lockstep.messages import multitask as words
from lockstep.messages.base.pairs import as_pairs, refuse_integers
from lockstep.messages.nouns import PYTORCH
from lockstep.pytorch.base.fused_step import (
    make_momentum,
    require_capturable,
    require_fused,
    step_each,
    step_starting_momentum,
)
from lockstep.pytorch.base.gradients import (
    Pairs,
    dtype_name,
    gradients_set_to,
    name_in,
    named_parameters,
    refuse_sharded,
    require_tensor,
)
from lockstep.pytorch.base.stack import base_of
from lockstep.pytorch.base.train_v1 import evaluate
from lockstep.pytorch.base.wrapper import OptimizerWrapper
from lockstep.pytorch.clipping.clip_gradients import (
    clip_factor,
    global_norm,
    scale_gradients,
)
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.tensors import foreach
from lockstep.pytorch.tensors.norms import accurate_norm, magnitudes
from lockstep.pytorch.tensors.zero_test import (
    flush_subnormals,
    largest_vanishing,
    spread,
    zero_flags,
)
from lockstep.quirks import Quirks, quirks_of

__all__ = ["MultitaskOptimizerWrapper", "clip_gradients_by_global_norm"]


@documented
class MultitaskOptimizerWrapper(OptimizerWrapper):
    """...

    During the step of ``opt``, ``.grad`` is ``None`` for such a parameter; afterwards
    the gradient is restored. Per-parameter step counts do not advance either. If no
    gradient is left to apply, ``opt`` takes no step. ``last_step`` reports the step.

    Args:
        opt: any optimizer of torch, a wrapper included.
        strict: as the original, quirks included: ``opt`` is changed in place, so that
            its own ``step`` also skips all-zero gradients (this has no effect if
            ``opt`` is a wrapper); the powers of beta of a TF1 optimizer advance even if
            every gradient is zero; float32 subnormals count as zero; ``opt`` cannot be
            a multitask wrapper.
        capturable: never wait for a GPU, so that a CUDA graph can capture the step.
            ``opt`` must be fused. Its step, hooks included, is called once for each
            parameter, and its state also exists for parameters whose gradients were
            all zero so far. Gradients inside of a loss scale are checked while they are
            still scaled.

    Raises:
        ...
        ValueError: ``opt`` needs its closure several times a step (LBFGS).
            With ``capturable``, also if ``opt`` is not fused, if its momentum is
            dampened, or with ``strict``.

    Cost: one element of each gradient is read, in one host sync. Only gradients that
    begin with a zero are read further. With ``capturable`` all gradients are read once,
    and there is no sync, but a launch for each parameter.

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

    _seen: tuple[list[Tensor], list[bool] | Tensor, list[bool], list[bool]] | None
    _seen = None
    _skipped: Tensor | None = None
    _reached_inner = False

    def __init__(
        self, opt: Optimizer, strict: bool = False, *, capturable: bool = False
    ) -> None:
        quirks = quirks_of(strict)
        nesting = quirks.multitask_nesting
        refused = nesting and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, Optimizer):
            raise words.not_an_optimizer(opt, PYTORCH, nesting)
        if capturable:
            require_capturable(words.WRAPPER, opt, {"strict": strict})
        self.strict, self._quirks, self.capturable = strict, quirks, capturable
        super().__init__(opt)
        if quirks.multitask_in_place:
            leave_zeros_out(opt, quirks.multitask_subnormals)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        vars(self).setdefault("capturable", False)
        quirks = self._quirks = quirks_of(vars(self).get("strict", False))
        if "strict" in state and quirks.multitask_in_place:
            leave_zeros_out(self.inner_optimizer, quirks.multitask_subnormals)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Whether a loss scale may let the step divide gradients, and skip it."""
        return self.capturable

    @property
    def _divides_inside(self) -> bool:
        """Whether ``opt`` may divide gradients as it updates, see the base class.

        Not SGD with dampening, because it is not fused in some steps, see
        :func:`step_starting_momentum`.
        """
        dampened = any([group.get("dampening") for group in self.param_groups])
        return not (self.capturable or self.strict or dampened)

    def step_inner(self) -> None:
        """Take the step of ``opt`` without all-zero gradients."""
        parameters = [p for group in self.param_groups for p in group["params"]]
        if self.capturable:
            self._step_on_device(parameters)
            return
        gradients = [parameter.grad for parameter in parameters]
        quirks = self._quirks
        limit = largest_vanishing(self._undivided_by)
        zero = zero_flags(gradients, quirks.multitask_subnormals, limit)
        absent = [gradient is None for gradient in gradients]
        # Usually none is absent, and then none has to be asked whether it is frozen.
        left_out = frozen(parameters, absent) if any(absent) else absent
        self._seen = parameters, zero, absent, left_out
        idle = all(map(or_, zero, absent))
        in_place = quirks.multitask_in_place
        # Under strict, opt itself leaves zeros out, and its powers of beta advance.
        hands_on_all = in_place and (quirks.multitask_shared_state or not idle)
        self._reached_inner = hands_on_all or not idle
        if hands_on_all or not (idle or any(zero)):
            self._step_inside()
        elif idle:
            present = [p for p in parameters if p.grad is not None]
            if self._only_wants_state(present):
                self.inner_optimizer.step()
            else:
                super().note_no_gradients()
        else:
            zeros = list(compress(parameters, zero))
            with gradients_set_to(zeros, [None] * len(zeros)):
                self._step_inside()
        if limit and any(zero):
            # opt did not divide these, but no caller should see them multiplied.
            with torch.no_grad():
                foreach.zero(list(compress(gradients, zero)))

    def _step_inside(self) -> None:
        """Let ``opt`` step. Parameters may have a gradient now and have no state."""
        inner = self.inner_optimizer
        step_starting_momentum(base_of(inner), inner.step)

    def _step_on_device(self, parameters: list[Tensor]) -> None:
        """Take the step of ``opt`` for each parameter; those with zeros skip it.

        A loss scale outside has set ``grad_scale`` and ``found_inf``.
        """
        require_fused(words.WRAPPER, self.inner_optimizer)
        present = [p for p in parameters if p.grad is not None]
        if not present:
            self.note_no_gradients()
            return
        make_momentum(self.inner_optimizer)
        grad_scale = getattr(self, "grad_scale", None)
        self._skipped = getattr(self, "found_inf", None)
        with torch.no_grad():
            zero = magnitudes([p.grad for p in present]) == 0
            skip = zero.float()
            if self._skipped is not None:
                skip = skip.maximum(self._skipped)
        absent = [p.grad is None for p in parameters]
        self._seen = parameters, zero, absent, frozen(parameters, absent)
        self._reached_inner = True
        step_each(self.inner_optimizer, present, skip, grad_scale)

    def note_no_gradients(self) -> None:
        """Record a step without gradients: see the base class."""
        self._seen, self._skipped = ([], [], [], []), None
        super().note_no_gradients()

    @property
    def last_step(self) -> StepReport:
        """The report of the last step; before the first step, ``NO_STEP``.

        With ``capturable``, reading it waits for the device.
        """
        if self._seen is None:
            return NO_STEP
        names = named_parameters(self)
        parameters, zero, absent, left_out = self._seen
        if all(absent) or (self._skipped is not None and self._skipped.item()):
            return NO_GRADIENTS
        if isinstance(zero, Tensor):
            zero = spread(zero.tolist(), absent)
        listed = [not is_frozen for is_frozen in left_out]
        columns = [name_in(names, p) for p in parameters], zero, absent
        report = words.report(*(list(compress(c, listed)) for c in columns))
        inner = self.inner_optimizer if self._reached_inner else None
        inner_report = getattr(inner, "last_step", None)
        return words.report_through(report, inner_report, list(names.values()))


def frozen(parameters: Sequence[Tensor], absent: Sequence[bool]) -> list[bool]:
    """Return which parameters are not reported as absent, because they are frozen.

    This is looked up in the step, because they may be trained later.
    """
    both = zip(parameters, absent, strict=True)
    return [gone and not parameter.requires_grad for parameter, gone in both]


def leave_zeros_out(opt: Optimizer, flush: bool) -> None:
    """Change ``opt`` permanently, so that its step skips all-zero gradients.

    The original replaces the method of ``opt`` that updates one variable. A wrapper
    never calls this method, so nothing changes for it. ``flush``: subnormals are zero.
    """
    if isinstance(opt, RuleOptimizer):
        opt.ignores_zeros = True
    elif not isinstance(opt, OptimizerWrapper):
        step = opt.step

        @wraps(step)
        def step_without_zeros(self: Optimizer, closure: Any = None) -> Any:
            loss = evaluate(closure)
            parameters = list(named_parameters(opt))
            zero = zero_flags([parameter.grad for parameter in parameters], flush)
            zeros = list(compress(parameters, zero))
            with gradients_set_to(zeros, [None] * len(zeros)):
                step_starting_momentum(opt, step)
            return loss

        opt.step = MethodType(step_without_zeros, opt)


@documented
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Tensor | None, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[Pairs, Tensor]:
    """...

    Args:
        error_if_nonfinite: raise instead of returning NaN; costs a host sync.
        strict: as the original: the norm has the dtype of the gradients, so float16
            overflows; sparse gradients and mixed dtypes are refused; float32
            subnormals count as zero; ``clip_norm`` is not checked.

    Returns:
        The pairs with clipped gradients (new tensors; None stays None), and the norm:
        0-d, float32 by default.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.clip_gradients_by_global_norm``. Unlike
    ``torch.nn.utils.clip_grad_norm_`` it works on pairs, adds no 1e-6 to the norm, and
    its norm has an error of at most 1e-6 at 100M elements.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> pairs, norm = clip_gradients_by_global_norm(
        ...     [(torch.tensor([3.0, 4.0]), weight)], clip_norm=2.5
        ... )
        >>> pairs[0][0].tolist(), norm.item()
        ([1.5, 2.0], 5.0)
    """
    pairs = as_pairs(gradients_variables, words.CLIP)
    for position, (gradient, _) in enumerate(pairs):
        require_tensor(gradient, words.CLIP, f"pair {position}")
    gradients = [gradient for gradient, _ in pairs]
    quirks = quirks_of(strict)
    if strict:
        refuse_sharded(words.CLIP, gradients, "strict=True")
    check_clipping([g for g in gradients if g is not None], clip_norm, quirks)
    flush = quirks.multitask_subnormals
    if flush:
        gradients = [flushed(gradient) for gradient in gradients]
    present = [gradient for gradient in gradients if gradient is not None]
    if quirks.multitask_clip_float16:
        dtype = present[0].dtype if present else torch.float32
        norm = global_norm(present, dtype, flush)
    else:
        norm = accurate_norm(present)
    if error_if_nonfinite and not norm.isfinite():
        raise words.NONFINITE_NORM.error(norm=norm.item())
    factor = clip_factor(norm, clip_norm, flush)
    clipped = scale_gradients(gradients, factor)
    if flush:
        clipped = [flushed(gradient) for gradient in clipped]
    return list(zip(clipped, [v for _, v in pairs], strict=True)), norm


def check_clipping(present: Sequence[Tensor], clip_norm: Any, quirks: Quirks) -> None:
    """Raise for an invalid ``clip_norm``, and for gradients that cannot be scaled."""
    if quirks.multitask_clip_sparse:
        words.refuse_sparse(any(gradient.is_sparse for gradient in present))
    dtypes = [dtype_name(gradient) for gradient in present]
    if quirks.multitask_clip_dtypes:
        words.refuse_mixed_dtypes(dtypes)
    if not quirks.multitask_clip_range:
        words.check_clip_norm(clip_norm)
    if not quirks.multitask_clip_dtypes:
        refuse_integers(words.CLIP, dtypes)


def flushed(gradient: Tensor | None) -> Tensor | None:
    """Return a dense gradient with subnormals set to zero; others unchanged."""
    dense = gradient is not None and not gradient.is_sparse
    return flush_subnormals(gradient) if dense else gradient
