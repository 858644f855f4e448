"""LARC: a rate of its own for each tensor, from the norms of weight and gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lockstep.checks import CHOOSE, require
from lockstep.errors import unknown_name
from lockstep.pytorch import foreach, shards
from lockstep.pytorch.foreach import moved, with_values
from lockstep.pytorch.gradients import Pairs, check_gradient, is_alike
from lockstep.pytorch.norms import norm_of_each

OWNER = "LARC"
MODES = ("clip", "scale")


class LarcPolicy(NamedTuple):
    """LARC's parameters; the numbers are rounded to float32 where they are used.

    Attributes:
        larc_eta: the trust coefficient: the ratio of an update's norm to its weight's
            norm, > 0.
        larc_mode: "clip" never raises the rate, "scale" replaces it.
        min_update: the smallest ratio, >= 0.
        epsilon: added to the gradient's norm, >= 0.
    """

    larc_eta: float
    larc_mode: str = "clip"
    min_update: float = 1e-7
    epsilon: float = 1e-7


def larc_policy(larc_params: Mapping[str, Any]) -> LarcPolicy:
    """Check ``larc_params``, a dict with the names of :class:`LarcPolicy`.

    Raises:
        OutOfRangeError: a ValueError; ``larc_eta`` is missing, or a number is out of
            range.
        UnknownNameError: a ValueError; an unknown name or mode.
    """
    is_dict = isinstance(larc_params, Mapping)
    require(OWNER, "larc_params", larc_params, is_dict, "a dict of parameters")
    for name, value in larc_params.items():
        if name not in LarcPolicy._fields:
            raise unknown_name(f"{OWNER}: larc_params", name, LarcPolicy._fields)
        if name == "larc_mode":
            if value not in MODES:
                raise unknown_name(f"{OWNER}: larc_mode", value, MODES)
            continue
        # No integer, as in the original.
        require(OWNER, name, value, isinstance(value, float), "a float", "write 1.0")
        least = math.ulp(0.0) if name == "larc_eta" else 0.0
        expected = "> 0, finite" if least else ">= 0, finite"
        require(OWNER, name, value, least <= value < math.inf, expected, CHOOSE)
    has_eta = "larc_eta" in larc_params
    remedy = "give the ratio of update to weight, such as 0.001"
    require(OWNER, "larc_params", larc_params, has_eta, "an entry 'larc_eta'", remedy)
    return LarcPolicy(**larc_params)


def larc_ratios(
    policy: LarcPolicy, pairs: Pairs, rate: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the ratios r of the gradients that are present, in float32: [n] each.

    clip:  r = min(max(eta |w| / (lr (|g| + epsilon)), min_update), 1)
    scale: r = max(eta |w| / (|g| + epsilon), min_update)

    If both norms are finite, r is 1 where a norm is 0, and in mode "clip" where lr is
    0. The first result is r before the limit of 1.

    Args:
        policy: LARC's parameters.
        pairs: pairs of (gradient or None, parameter), at least one with a gradient.
        rate: the learning rate, 0-d or [n].
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
    """Return the pairs with each gradient times its ratio, rounded to its dtype.

    Args:
        pairs: pairs of (gradient or None, parameter).
        ratios: [n] float32, one for each gradient that is present.
        in_place: overwrite the gradients.
    """
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


def require_alike(pairs: Pairs) -> None:
    """Raise unless each gradient has the shape, dtype and device of its parameter."""
    for position, (gradient, parameter) in enumerate(pairs):
        if gradient is not None and not is_alike(gradient, parameter):
            check_gradient(gradient, parameter, f"pair {position}", OWNER)


def larc_rate(lr: Tensor | float | Sequence[float], pairs: Pairs) -> Tensor:
    """Return the learning rate in float32: 0-d, or one for each gradient: [n]."""
    device, remedy = pairs[0][1].device, "pass the learning rate of this step"
    expected = f"a number or a 0-d tensor, or {len(pairs)} of them, one for each pair"
    if isinstance(lr, Tensor):
        rates = lr.detach().float()
    else:
        for rate in lr if isinstance(lr, list | tuple) else [lr]:
            is_number = isinstance(rate, Real) and not isinstance(rate, bool)
            require(OWNER, "lr", rate, is_number, expected, remedy)
            fine = 0 <= rate < math.inf
            require(OWNER, "lr", rate, fine, "a finite number >= 0", remedy)
        if isinstance(lr, Real):
            return torch.full((), float(lr), dtype=torch.float32, device=device)
        rates = torch.tensor(lr, dtype=torch.float32)
    fits = rates.shape in ((), (len(pairs),))
    require(OWNER, "lr", list(rates.shape), fits, expected, remedy)
    positions = [k for k, (gradient, _) in enumerate(pairs) if gradient is not None]
    if rates.dim() and len(positions) < len(pairs):
        # Not by an index tensor, because copying one to a GPU would wait.
        rates = torch.stack([rates[k] for k in positions]) if positions else rates[:0]
    return moved(rates, device)
