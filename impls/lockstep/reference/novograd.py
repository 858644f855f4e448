"""NovoGrad: momentum of gradients, each divided by a running norm of its tensor."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from lockstep.errors import DtypeError, MalformedPairsError, NoGradientsError
from lockstep.interface import Array, Gradient, Rows
from lockstep.optimizers import NOVOGRAD
from lockstep.reference import arrays, optimizers
from lockstep.reference.arrays import Variable, densify, wide_dtype
from lockstep.reference.optimizers import RuleOptimizer, Slots, Updated


def square_norm(g: Array) -> Array:
    """Return |g|^2, the sum of all squared elements: 0-d, at least float32."""
    wide = g.astype(wide_dtype(g.dtype))
    return arrays.lane_sum(wide * wide)


def normalized(h: Any, moment: Array, w: Array, g: Array) -> Array:
    """g' = (g (1 / sqrt(v + eps)) + wd w) share."""
    direction = g * (1 / np.sqrt(moment + h.epsilon))
    if h.weight_decay:
        direction = direction + h.weight_decay * w
    return np.asarray(direction * h.share)


def novograd(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """v = b2 v + (1 - b2) |g|^2 if v is finite and > 0, else |g|^2; a = b1 a + g'.

    So an infinite v, which would stay infinite forever, is replaced. Then w -= lr a.
    """
    stored = slots["second_moment"]
    moment = square_norm(g)
    if not h.strict:  # novograd-second-moment
        if 0 < stored < np.inf:
            moment = stored * h.beta2 + moment * h.rest2
        stored = moment
    w, state = optimizers.momentum(h, w, slots, normalized(h, moment, w, g))
    return w, {**state, "second_moment": stored}


def novograd_rows(h: Any, w: Array, slots: Slots, g: Rows) -> Updated:
    """Make the gradient dense, with duplicates summed: momentum decays on every row."""
    return novograd(h, w, slots, densify(g, w.shape))


class NovoGrad(RuleOptimizer):
    """NovoGrad: one second moment for each variable, so half of Adam's state.

        v = b2 v + (1 - b2) |g|^2, at first |g|^2; g' = g / sqrt(v + eps) + wd w;
        a = b1 a + g', or b1 a + (1 - b1) g' averaged; w -= lr a.

    A v that is 0 or not finite is replaced by the next |g|^2. The arguments are the
    original's; a number out of its range is an OutOfRangeError (a ValueError).

    Strict, as in OpenSeq2Seq: v is |g|^2 of the step, whatever b2 is.
    ``apply_gradients`` needs a list, writes normalized gradients into it and refuses
    absent gradients and variables other than float32.

    Origin: OpenSeq2Seq, ``open_seq2seq.optimizers.novograd.NovoGrad``; Ginsburg et al.,
    2019 (arXiv 1905.11286).
    """

    spec = NOVOGRAD
    rule, rule_of_rows = staticmethod(novograd), staticmethod(novograd_rows)

    def hyper(self, dtype: np.dtype[Any], shared: Slots) -> Any:
        """Return the hyper-parameters; 1 - beta is computed in float64 first."""
        own, number = self.arguments, wide_dtype(dtype).type
        return SimpleNamespace(
            learning_rate=number(own["learning_rate"]),
            momentum=number(own["beta1"]),
            use_nesterov=False,
            beta2=number(own["beta2"]),
            rest2=number(1 - own["beta2"]),
            epsilon=number(own["epsilon"]),
            weight_decay=number(own["weight_decay"]),
            share=number(1 - own["beta1"] if own["grad_averaging"] else 1),
            strict=self.strict,
        )

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
    ) -> None:
        """Update every variable that has a gradient, then the global step."""
        if not self.strict:
            return super().apply_gradients(grads_and_vars, global_step)
        # novograd-limits
        if not isinstance(grads_and_vars, list):
            raise MalformedPairsError(
                "NovoGrad: expected a list of (gradient, variable), as the original, "
                f"got {type(grads_and_vars).__name__}; leave strict off, or pass "
                "list(pairs)."
            )
        pairs = arrays.check_pairs(grads_and_vars, "NovoGrad")
        directions = [(self.direction(g, v), v) for g, v in pairs]
        super().apply_gradients(pairs, global_step)
        grads_and_vars[:] = directions

    def direction(self, gradient: Gradient, variable: Variable) -> Array:
        """Return the original's normalized gradient, dense, with v = |g|^2."""
        if gradient is None:
            raise NoGradientsError(
                "NovoGrad: expected a gradient for every variable, as the original, "
                f"got None for {variable.name!r}; leave strict off, or leave it out."
            )
        if variable.dtype != np.float32:
            raise DtypeError(
                f"NovoGrad: expected float32 for {variable.name!r}, as the original, "
                f"got {variable.dtype}; leave strict off, or train float32 masters."
            )
        dense = densify(gradient, variable.shape)
        h = self.hyper(variable.dtype, {})
        with np.errstate(all="ignore"):
            return normalized(h, square_norm(dense), variable.value, dense)
