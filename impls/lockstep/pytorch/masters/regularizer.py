"""Regularizers of half-precision weights, which the optimizer's wrapper applies."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from lockstep.docstrings import documented
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.pytorch.base.gradients import dtype_name

__all__ = ["Regularizer", "mp_regularizer_wrapper", "penalty_gradient", "registered"]

Regularizer = Callable[[Tensor], Tensor]

REGISTERED = WeakTensorKeyDictionary()
"""Weight -> its regularizer, for as long as the weight lives."""


@documented
def mp_regularizer_wrapper(regularizer: Regularizer) -> Callable[[Tensor], object]:
    """...

    In float16, the gradient of the penalty of a small weight underflows. So
    :class:`MixedPrecisionOptimizerWrapper` computes it at the float32 master. A weight
    has to be registered before the step, but may be registered after the wrapper was
    constructed. In a copied model, register the weights again, or copy the wrapper too.

    Args:
        regularizer: returns the penalty of a weight, a 0-d tensor.

    Returns:
        A function of a weight. For a weight in half precision it stores a weak
        reference to the weight and returns None, because there is nothing to add to the
        loss. For any other weight it returns the result of ``regularizer``.

    Origin: OpenSeq2Seq (8681d381ed40), ``mp_regularizer_wrapper``.

    Example:
        >>> l2 = mp_regularizer_wrapper(lambda weight: 0.5 * weight.square().sum())
        >>> l2(torch.ones(2)).item()
        1.0
        >>> l2(torch.nn.Parameter(torch.ones(2).half())) is None
        True
    """
    words.check_regularizer(regularizer)

    def register(weight: Tensor) -> object:
        if not words.has_master(dtype_name(weight)):
            return regularizer(weight)
        REGISTERED[weight] = regularizer
        return None

    return register


def registered(weights: Iterable[Tensor]) -> dict[Tensor, Regularizer]:
    """Return weight -> regularizer, for the weights that have one."""
    if not REGISTERED:
        return {}
    return {w: REGISTERED[w] for w in weights if w in REGISTERED}


def penalty_gradient(regularizer: Regularizer, master: Tensor) -> Tensor:
    """Return d penalty / d master.

    Raises:
        TypeError: the penalty is no scalar tensor, or not computed from the weight.
    """
    with torch.enable_grad():
        weight = master.detach().requires_grad_()
        penalty = regularizer(weight)
    if not isinstance(penalty, Tensor):
        raise refusals.PENALTY.error(got=repr(penalty))
    if penalty.numel() != 1:
        raise refusals.PENALTY.error(got=f"a tensor of shape {list(penalty.shape)}")
    if not penalty.requires_grad:
        raise refusals.PENALTY.error(got="a tensor without a gradient")
    (gradient,) = torch.autograd.grad(penalty, weight, allow_unused=True)
    if gradient is None:
        raise refusals.PENALTY.error(got="one that does not depend on the weight")
    return gradient
