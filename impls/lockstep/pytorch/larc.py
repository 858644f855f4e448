"""LARC: a rate of its own for each tensor, from the norms of weight and gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from lockstep.checks import require
from lockstep.larc import LARC, LarcPolicy
from lockstep.pytorch import foreach, shards
from lockstep.pytorch.foreach import moved, with_values
from lockstep.pytorch.gradients import Pairs
from lockstep.pytorch.norms import norm_of_each


def larc_ratios(
    policy: LarcPolicy, pairs: Pairs, rate: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the ratios of present gradients, before the limit of 1 and after.

    Their rule is in ``post_process_gradients``. ``rate`` is 0-d or [n], as they are.
    """
    gradients = [gradient for gradient, _ in pairs if gradient is not None]
    parameters = [parameter for gradient, parameter in pairs if gradient is not None]
    weight, gradient = norm_of_each([*parameters, *gradients]).tensor_split(2)
    divisor, is_still = gradient + policy.epsilon, (weight == 0) | (gradient == 0)
    if policy.larc_mode == "clip":
        divisor, is_still = rate * divisor, is_still | (rate == 0)
    raw = (policy.larc_eta * weight / divisor).clamp_min(policy.min_update)
    is_known = (weight + gradient).isfinite()
    raw = torch.where(is_still & is_known, 1.0, raw)
    return raw, raw.clamp_max(1) if policy.larc_mode == "clip" else raw


def scale_by_ratios(pairs: Pairs, ratios: Tensor, in_place: bool = False) -> Pairs:
    """Return the pairs with each gradient times its ratio, rounded to its dtype."""
    gradients = [gradient for gradient, _ in pairs if gradient is not None]
    parts = shards.parts_of(gradients)
    values = [g._values() if g.is_sparse else g for g in parts]

    factors: list[Any] = [None] * len(values)
    for positions in foreach.alike(values):
        like, cast = values[positions[0]], ratios
        if like.itemsize < 4:  # It would round a large ratio to infinity.
            cast = ratios.clamp(max=torch.finfo(like.dtype).max)
        cast = moved(cast.to(like.dtype), like.device).unbind()
        for k in positions:
            factors[k] = cast[k]
    if in_place:
        foreach.multiply_in_place(values, factors)
        return pairs
    products = foreach.multiply(values, factors)
    scaled = shards.laid_out(gradients, list(map(with_values, parts, products)))
    results = iter(scaled)
    return [(None if g is None else next(results), p) for g, p in pairs]


def larc_rate(lr: Tensor | float | Sequence[float], pairs: Pairs) -> Tensor:
    """Return the learning rate in float32: 0-d, or one for each gradient: [n]."""
    device, remedy = pairs[0][1].device, "pass the learning rate of this step"
    expected = f"a number or a 0-d tensor, or {len(pairs)} of them, one for each pair"
    if isinstance(lr, Tensor):
        rates = lr.detach().float()
    else:
        for rate in lr if isinstance(lr, list | tuple) else [lr]:
            is_number = isinstance(rate, Real) and not isinstance(rate, bool)
            require(LARC, "lr", rate, is_number, expected, remedy)
            fine = 0 <= rate < math.inf
            require(LARC, "lr", rate, fine, "a finite number >= 0", remedy)
        if isinstance(lr, Real):
            return torch.full((), float(lr), dtype=torch.float32, device=device)
        rates = torch.tensor(lr, dtype=torch.float32)
    fits = rates.shape in ((), (len(pairs),))
    require(LARC, "lr", list(rates.shape), fits, expected, remedy)
    positions = [k for k, (gradient, _) in enumerate(pairs) if gradient is not None]
    if rates.dim() and len(positions) < len(pairs):
        # Not by an index tensor, because copying one to a GPU would wait.
        rates = torch.stack([rates[k] for k in positions]) if positions else rates[:0]
    return moved(rates, device)
