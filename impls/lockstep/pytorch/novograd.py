"""NovoGrad as a torch optimizer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.optimizers import NOVOGRAD
from lockstep.pytorch import foreach, shards
from lockstep.pytorch.foreach import rounded, rsqrt
from lockstep.pytorch.norms import norm_of_each, together
from lockstep.pytorch.rule_optimizer import (
    Hyper,
    Row,
    RuleOptimizer,
    Slots,
    Tensors,
    constructor,
)


def novograd(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    """Apply the rule of :class:`NovoGrad`; for DTensors, to this rank's parts."""
    stored, rate = slots["second_moment"], hyper["learning_rate"]
    squares = square_norms(gradients)
    before = together(stored, weights[0].device)
    # A v that is 0 or not finite is replaced by the next |g|^2.
    begun = (before > 0) & (before < torch.inf)
    mixed = before * hyper["beta2"] + squares * hyper["rest2"]
    moments = torch.where(begun, mixed, squares)
    factors = rsqrt(moments + hyper["epsilon"])
    weights, gradients = shards.parts_of(weights), shards.parts_of(gradients)
    momenta = shards.parts_of(slots["momentum"])
    gradients = cast(gradients, factors.dtype)
    foreach.scale_alike_in_place(momenta, hyper["beta1"])
    decays, averages = differs(hyper["weight_decay"], 0), differs(hyper["share"], 1)
    if not decays and not averages:
        # No new tensor here: writing one takes as long as the rest of the rule.
        foreach.add_each_scaled(momenta, gradients, factors)
    else:
        directions = foreach.multiply(gradients, factors.unbind())
        if decays:
            wide = cast(weights, factors.dtype)
            foreach.add_scaled(directions, wide, hyper["weight_decay"])
        if averages:
            foreach.scale_alike_in_place(directions, hyper["share"])
        foreach.add(momenta, directions)
    foreach.add_scaled(weights, momenta, -rate)
    foreach.copy(stored, moments.unbind())


def square_norms(gradients: Tensors) -> Tensor:
    """Return |g|^2 of each gradient of one dtype, in at least float32: [n]."""
    if shards.are_among(gradients):
        return shards.sums(square_norms(shards.parts_of(gradients)), gradients)
    dtype = torch.promote_types(gradients[0].dtype, torch.float32)
    if dtype == torch.float32:  # Reads each gradient once, and stores no squares.
        return norm_of_each(gradients).square()
    wide = cast(gradients, dtype)
    sums = [square.sum() for square in foreach.multiply(wide, wide)]
    return together(sums, gradients[0].device)


def cast(tensors: Tensors, dtype: torch.dtype) -> list[Tensor]:
    """Return tensors in ``dtype``; the check is cheaper than a cast without effect."""
    return [t if t.dtype == dtype else t.to(dtype) for t in tensors]


def differs(number: float | Tensor, other: float) -> bool:
    """Whether two numbers differ; True for a tensor, because reading it may wait."""
    return isinstance(number, Tensor) or number != other


class NovoGrad(RuleOptimizer):
    """NovoGrad as a torch optimizer: one second moment for a whole tensor.

        v = b2 v + (1 - b2) |g|^2, at first |g|^2; g' = g / sqrt(v + eps) + wd w;
        a = b1 a + g', or b1 a + (1 - b1) g' averaged; w -= lr a.

    There is one v per tensor, so half of Adam's state. Sparse gradients are made dense,
    because momentum decays on every row. A v that is 0 or not finite is replaced by the
    next |g|^2. For half precision, norms are computed in float32. There is no host
    sync.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too. It is
            required here; the original's default is 1.0.
        beta1: b1, decay of a, in [0, 1).
        beta2: b2, decay of v, in [0, 1).
        epsilon: eps >= 0, inside of the root.
        weight_decay: wd >= 0, multiplied by the rate and subject to momentum.
        grad_averaging: multiply g', its decay included, by 1 - b1.
        use_locking, name: without effect on the numbers.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``momentum``, which starts at 0; ``second_moment`` (v), a 0-d float32 tensor
    that starts at 0.

    Origin: OpenSeq2Seq, ``open_seq2seq.optimizers.novograd.NovoGrad``; Ginsburg et al.,
    2019 (arXiv 1905.11286). There v is |g|^2 of the step, whatever b2 is.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0, 1.0]))
        >>> optimizer = NovoGrad([weight], learning_rate=0.5)
        >>> weight.grad = torch.tensor([0.0, 4.0])
        >>> optimizer.step()
        >>> weight.tolist()
        [1.0, 0.5]
        >>> optimizer.get_slot(weight, "second_moment").item()
        16.0
    """

    spec, _rule = NOVOGRAD, staticmethod(novograd)
    # Fewer small operations on norms; gradients are still in the cache after them.
    _cpu_run = 1 << 20

    @constructor
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        beta1: float = 0.95,
        beta2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        grad_averaging: bool = False,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None: ...

    def _cast(self, arguments: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
        averages = arguments.pop("grad_averaging")
        arguments["rest2"] = 1 - arguments["beta2"]
        arguments["share"] = 1 - arguments["beta1"] if averages else 1.0
        return {
            name: value.to(dtype)
            if isinstance(value, Tensor)
            else rounded(value, dtype)
            for name, value in arguments.items()
        }

    def _update_dense(
        self, hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors
    ) -> None:
        """Apply the rule to whole DTensors, because it needs their norms."""
        self._rule(hyper, weights, slots, shards.split_alike(gradients, weights))

    def _update_rows(
        self,
        hyper: Hyper,
        weight: Tensor,
        slots: Row,
        gradient: Tensor,
    ) -> None:
        """Make the gradient dense, because momentum decays in every row."""
        lists = {name: [slot] for name, slot in slots.items()}
        self._rule(hyper, [weight], lists, [gradient.to_dense()])
