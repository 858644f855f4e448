"""The optimizers of TensorFlow 1, as :class:`torch.optim.Optimizer` classes.

Each optimizer has the defaults, the order of operations and the bits of the optimizer
with the same name in ``tf.compat.v1.train`` (AdamW: ``tf.contrib.opt``). This matters
more here than speed; ``torch.optim`` has fused kernels of similar rules.

A parameter in float16 or bfloat16 has slots in float32, and the rule is computed in
float32. The parameter is rounded once per step.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from lockstep.optimizers import OPTIMIZERS
from lockstep.pytorch import foreach
from lockstep.pytorch.foreach import quotient, rounded, rsqrt, sqrt
from lockstep.pytorch.norms import as_rows, sum_duplicates
from lockstep.pytorch.rule_optimizer import (
    Group,
    Hyper,
    Row,
    RuleOptimizer,
    Slots,
    Tensors,
    constructor,
)


def descent(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    """w -= lr g."""
    foreach.add_scaled(weights, gradients, -hyper["learning_rate"])


def descent_rows(hyper: Hyper, weight: Tensor, slots: Row, gradient: Tensor) -> None:
    """Update a row once for each of its occurrences, in order."""
    rate = hyper["learning_rate"]
    if gradient.dtype != weight.dtype:
        indices, rows = sum_duplicates(gradient)  # So each row is rounded once.
        weight[indices] -= rate * rows
        return
    indices, rows = as_rows(gradient)
    weight.index_add_(0, indices, rate * rows, alpha=-1)


class GradientDescentOptimizer(RuleOptimizer):
    """Gradient descent as a torch optimizer.

    w -= lr g. If a sparse gradient lists a row several times, it is updated each time.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        use_locking, name: without effect on the numbers.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Origin: TensorFlow 1.15, ``tf.train.GradientDescentOptimizer``.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
        >>> optimizer = GradientDescentOptimizer([weight], learning_rate=0.5)
        >>> optimizer.minimize(lambda: (weight * weight).sum())
        >>> weight.tolist()
        [0.0, 0.0]
    """

    spec = OPTIMIZERS["GradientDescent"]
    _rule, _update_rows = staticmethod(descent), staticmethod(descent_rows)
    _cpu_piece = None  # With a single operation, the cache saves nothing.

    @constructor
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None: ...


def momentum(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    """m = mu m + g, w -= lr m; with Nesterov w -= lr g + lr mu m."""
    rate, mu, momenta = hyper["learning_rate"], hyper["momentum"], slots["momentum"]
    foreach.scale_alike_in_place(momenta, mu)
    foreach.add(momenta, gradients)
    if hyper["use_nesterov"]:
        steps = foreach.scale_alike(gradients, rate)
        foreach.add_scaled(steps, foreach.scale_alike(momenta, mu), rate)
        foreach.subtract_in_place(weights, steps)
    else:
        foreach.add_scaled(weights, momenta, -rate)


def momentum_rows(hyper: Hyper, weight: Tensor, slots: Row, gradient: Tensor) -> None:
    """Apply the rule to the gradient's rows, in the order of the sparse kernel."""
    rate, mu = hyper["learning_rate"], hyper["momentum"]
    indices, rows = sum_duplicates(gradient)
    momenta = slots["momentum"][indices] * mu + rows
    slots["momentum"][indices] = momenta
    if hyper["use_nesterov"]:
        weight[indices] -= rate * rows + (rate * mu) * momenta
    else:
        weight[indices] -= rate * momenta


class MomentumOptimizer(RuleOptimizer):
    """Gradient descent with momentum, as a torch optimizer.

    a = mu a + g; w -= lr a. Nesterov: w -= lr g + lr mu a, with a already new.

    Sparse gradients: duplicate rows are summed, and only these rows are updated. The
    momentum of other rows does not decay. ``torch.optim.SGD`` computes the same in
    another order of operations.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        momentum: mu, in [0, 1].
        use_locking, name: without effect on the numbers.
        use_nesterov: look ahead, as Nesterov did.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``momentum``, which starts at 0.

    Origin: TensorFlow 1.15, ``tf.train.MomentumOptimizer``; Sutskever et al. 2013.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = MomentumOptimizer([weight], 0.25, momentum=0.5)
        >>> for _ in range(2):
        ...     optimizer.minimize(lambda: weight.sum())
        >>> weight.item(), optimizer.get_slot(weight, "momentum").item()
        (0.375, 1.5)
    """

    spec = OPTIMIZERS["Momentum"]
    _rule, _update_rows = staticmethod(momentum), staticmethod(momentum_rows)

    @constructor
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        momentum: float,
        use_locking: bool = False,
        name: str | None = None,
        use_nesterov: bool = False,
    ) -> None: ...


def adagrad(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    """a += g^2, w -= lr g (1 / sqrt(a))."""
    accumulators = slots["accumulator"]
    foreach.add(accumulators, foreach.multiply(gradients, gradients))
    steps = foreach.scale_alike(gradients, hyper["learning_rate"])
    foreach.multiply_in_place(steps, foreach.reciprocal_roots(accumulators))
    foreach.subtract_in_place(weights, steps)


class AdagradOptimizer(RuleOptimizer):
    """Adagrad as a torch optimizer, without an epsilon.

    acc += g^2; w -= lr g / sqrt(acc).

    Sparse gradients: duplicate rows are summed, and only these rows are updated.
    ``torch.optim.Adagrad`` starts at 0 and adds an epsilon to the root.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        initial_accumulator_value: of acc, > 0.
        use_locking, name: without effect on the numbers.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``accumulator``, which starts at ``initial_accumulator_value``.

    Origin: TensorFlow 1.15, ``tf.train.AdagradOptimizer``; Duchi et al. 2011.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdagradOptimizer([weight], 0.5, initial_accumulator_value=3.0)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> weight.item(), optimizer.get_slot(weight, "accumulator").item()
        (0.75, 4.0)
    """

    spec = OPTIMIZERS["Adagrad"]
    _rule = staticmethod(adagrad)

    @constructor
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        initial_accumulator_value: float = 0.1,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None: ...


def adam(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    """m += (g - m) (1 - b1), v += (g^2 - v) (1 - b2), w -= m size / (sqrt(v) + eps)."""
    m, v = slots["m"], slots["v"]
    foreach.blend(m, gradients, 1 - hyper["beta1"])
    foreach.blend(v, foreach.multiply(gradients, gradients), 1 - hyper["beta2"])
    divisors = foreach.roots_plus(v, hyper["epsilon"])
    foreach.add_quotients(weights, m, -adam_size(hyper), divisors)


def adam_rows(hyper: Hyper, weight: Tensor, slots: Row, gradient: Tensor) -> None:
    """Decay both moments and update every row: the rule is not lazy."""
    m, v = slots["m"], slots["v"]
    indices, rows = sum_duplicates(gradient)
    m *= hyper["beta1"]
    v *= hyper["beta2"]
    m[indices] += rows * (1 - hyper["beta1"])
    v[indices] += (rows * rows) * (1 - hyper["beta2"])
    weight -= adam_size(hyper) * m / (sqrt(v) + hyper["epsilon"])


def adam_size(hyper: Hyper) -> Tensor | float:
    """Return lr sqrt(1 - beta2_power) / (1 - beta1_power), rounded as with tensors."""
    rate, dtype = hyper["learning_rate"], hyper["learning_rate"].dtype
    rest1 = rounded(1 - rounded(hyper["beta1_power"], dtype), dtype)
    rest2 = rounded(1 - rounded(hyper["beta2_power"], dtype), dtype)
    root = rounded(math.sqrt(rest2), dtype) if rest2 >= 0 else math.nan
    if not rate.is_cpu:  # Elsewhere, Python numbers are faster.
        return rate * root / foreach.number_like(rest1, rate)
    return rounded(quotient(rounded(rate.item() * root, dtype), rest1), dtype)


class AdamOptimizer(RuleOptimizer):
    """Adam as a torch optimizer, in the "epsilon hat" form of TensorFlow 1.

    m += (1 - b1) (g - m); v += (1 - b2) (g^2 - v);
    w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

    So epsilon is added to the root of the uncorrected v. ``torch.optim.Adam`` divides
    sqrt(v) by sqrt(1 - b2^t) before it adds eps, and counts the steps of each
    parameter. Sparse gradients: duplicate rows are summed. The rule is not lazy, so m,
    v and w change in every row.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        beta1: decay of m, b1 in [0, 1).
        beta2: decay of v, b2 in [0, 1).
        epsilon: eps >= 0.
        use_locking, name: without effect on the numbers.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``m`` and ``v``, which start at 0. The powers ``beta1_power`` and
    ``beta2_power`` are float32 numbers in the groups. t counts the optimizer's steps,
    not those of each parameter.

    Origin: TensorFlow 1.15, ``tf.train.AdamOptimizer``; Kingma and Ba 2015.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdamOptimizer([weight], learning_rate=0.5)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> round(weight.item(), 6), optimizer.get_slot_names()
        (0.5, ['m', 'v'])
    """

    spec = OPTIMIZERS["Adam"]
    _rule, _update_rows = staticmethod(adam), staticmethod(adam_rows)

    @constructor
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None: ...


def adamw(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    """w -= wd w, then Adam's step."""
    decay = hyper["weight_decay"]
    wide = [weight.to(decay.dtype) for weight in weights]
    foreach.add_scaled(wide, wide, -decay)
    adam(hyper, wide, slots, gradients)
    # Weights that were already wide have been updated in place.
    foreach.copy(weights, wide)


def adamw_rows(hyper: Hyper, weight: Tensor, slots: Row, gradient: Tensor) -> None:
    """Decay each row of the gradient once; then Adam updates every row."""
    decay, indices = hyper["weight_decay"], sum_duplicates(gradient).indices
    wide = weight.to(decay.dtype)
    wide[indices] -= decay * wide[indices]
    adam_rows(hyper, wide, slots, gradient)
    weight.copy_(wide)


class AdamWOptimizer(RuleOptimizer):
    """AdamW as a torch optimizer, whose decay is not multiplied by the rate.

    w -= weight_decay w, then as :class:`AdamOptimizer`. ``torch.optim.AdamW``
    multiplies the decay by the rate.

    Sparse gradients: weight decay changes only their rows, then Adam updates every row.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        weight_decay: the fraction of a weight that each update subtracts, >= 0.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        beta1: decay of m, in [0, 1).
        beta2: decay of v, in [0, 1).
        epsilon: eps >= 0, added to the root of the uncorrected v.
        use_locking, name: without effect on the numbers.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``m`` and ``v``, which start at 0.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.AdamWOptimizer``; Loshchilov and Hutter
    2019, whose decay is multiplied by the rate.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = AdamWOptimizer([weight], weight_decay=0.25, learning_rate=0.5)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> round(weight.item(), 6)
        0.25
    """

    spec = OPTIMIZERS["AdamW"]
    _rule, _update_rows = staticmethod(adamw), staticmethod(adamw_rows)

    @constructor
    def __init__(
        self,
        params: ParamsT,
        weight_decay: float,
        learning_rate: float | Tensor = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        use_locking: bool = False,
        name: str | None = None,
    ) -> None: ...


def rmsprop(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    keep, spreads = 1 - hyper["decay"], slots["rms"]
    foreach.blend(spreads, foreach.multiply(gradients, gradients), keep)
    if hyper["centered"]:
        means = slots["mg"]
        foreach.blend(means, gradients, keep)
        spreads = foreach.subtract(spreads, foreach.multiply(means, means))
    divisors = foreach.roots(foreach.plus_number(spreads, hyper["epsilon"]))
    momenta = slots["momentum"]
    foreach.scale_alike_in_place(momenta, hyper["momentum"])
    foreach.add_quotients(momenta, gradients, hyper["learning_rate"], divisors)
    foreach.subtract_in_place(weights, momenta)


def rmsprop_rows(hyper: Hyper, weight: Tensor, slots: Row, gradient: Tensor) -> None:
    decay, keep = hyper["decay"], 1 - hyper["decay"]
    indices, rows = sum_duplicates(gradient)
    spread = slots["rms"][indices] * decay + rows * rows * keep
    slots["rms"][indices] = spread
    if hyper["centered"]:
        mean = slots["mg"][indices] * decay + rows * keep
        slots["mg"][indices] = mean
        spread = spread - mean * mean
    step = rsqrt(spread + hyper["epsilon"]) * hyper["learning_rate"] * rows
    momenta = slots["momentum"][indices] * hyper["momentum"] + step
    slots["momentum"][indices] = momenta
    weight[indices] -= momenta


class RMSPropOptimizer(RuleOptimizer):
    """RMSProp as a torch optimizer, whose mean square starts at one.

    rms += (1 - d) (g^2 - rms); mom = mu mom + lr g / sqrt(rms + eps); w -= mom.
    Centered: mg += (1 - d) (g - mg), and the root is that of rms - mg^2 + eps.

    ``torch.optim.RMSprop`` starts at 0, adds eps outside of the root, and multiplies by
    the learning rate after the momentum. Sparse gradients: duplicate rows are summed,
    and only these rows are updated.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        decay: d, in [0, 1].
        momentum: mu, in [0, 1].
        epsilon: eps >= 0, inside of the root.
        centered: subtract the square of the mean gradient.
        use_locking, name: without effect on the numbers.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``rms``, which starts at 1; ``momentum`` and, if centered, ``mg``, at 0.

    Origin: TensorFlow 1.15, ``tf.train.RMSPropOptimizer``; Tieleman and Hinton 2012.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
        >>> optimizer = RMSPropOptimizer([weight], 0.5, epsilon=0.0)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> weight.item()
        0.5
    """

    spec = OPTIMIZERS["RMSProp"]
    _rule, _update_rows = staticmethod(rmsprop), staticmethod(rmsprop_rows)

    @constructor
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        decay: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-10,
        use_locking: bool = False,
        centered: bool = False,
        name: str | None = None,
    ) -> None: ...


def ftrl(hyper: Hyper, weights: Tensors, slots: Slots, gradients: Tensors) -> None:
    """Apply the rule of :class:`FtrlOptimizer` to the tensors, end to end in one."""
    accum, linear = (foreach.end_to_end(slots[name]) for name in ("accum", "linear"))
    gradient, weight = foreach.end_to_end(gradients), foreach.end_to_end(weights)
    wide = weight.to(accum.dtype)
    # A GPU would multiply by the reciprocal of a number on the CPU.
    rate = foreach.number_like(hyper["learning_rate"], accum)
    old_root = ftrl_root(hyper, accum)
    accum += gradient * gradient
    new_root = ftrl_root(hyper, accum)
    shrinkage = 2 * hyper["l2_shrinkage_regularization_strength"]
    # Without shrinkage, avoid 0 * w, which is NaN where w is infinite.
    shrunk = gradient + torch.where(shrinkage == 0, 0, shrinkage * wide)
    linear += shrunk - (new_root - old_root) / rate * wide
    pull = new_root / rate + 2 * hyper["l2_regularization_strength"]
    l1 = hyper["l1_regularization_strength"]
    moved = torch.where(linear.abs() <= l1, 0, (linear.sign() * l1 - linear) / pull)
    foreach.copy_parts(weights, moved)
    foreach.copy_parts(slots["accum"], accum)
    foreach.copy_parts(slots["linear"], linear)


def ftrl_root(hyper: Hyper, accum: Tensor) -> Tensor:
    """Return accum^-p, computed in float64."""
    power = hyper["learning_rate_power"]
    if power == -0.5:
        return sqrt(accum)
    return accum.double().pow(-power.double()).to(accum.dtype)


class FtrlOptimizer(RuleOptimizer):
    """FTRL-proximal as a torch optimizer, with l1, l2 and l2 shrinkage.

    G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p) / lr w; accum = n;
    w = (sign(linear) l1 - linear) / (n^-p / lr + 2 l2) where abs(linear) > l1, else 0.
    At rate 0 nothing changes.

    Sparse gradients: duplicate rows are summed, and only these rows are updated.

    Args:
        params: parameters, named parameters or groups, as for every torch optimizer.
        learning_rate: lr >= 0. It is ``lr`` in the groups, and ``lr=`` works too.
        learning_rate_power: p <= 0.
        initial_accumulator_value: of accum, >= 0.
        l1_regularization_strength: l1 >= 0.
        l2_regularization_strength: l2 >= 0.
        use_locking, name: without effect on the numbers.
        accum_name, linear_name: without effect.
        l2_shrinkage_regularization_strength: s >= 0.

    Raises:
        OutOfRangeError: a ValueError; an argument is out of its range.

    Slots: ``accum``, which starts at ``initial_accumulator_value``; ``linear``, at 0.

    Origin: TensorFlow 1.15, ``tf.train.FtrlOptimizer``; McMahan et al. 2013.

    Example:
        >>> weight = torch.nn.Parameter(torch.tensor([0.0]))
        >>> optimizer = FtrlOptimizer([weight], 0.5, initial_accumulator_value=0.0)
        >>> optimizer.minimize(lambda: weight.sum())
        >>> weight.item()
        -0.5
    """

    spec = OPTIMIZERS["Ftrl"]
    _rule = staticmethod(ftrl)

    @constructor
    def __init__(
        self,
        params: ParamsT,
        learning_rate: float | Tensor,
        learning_rate_power: float = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: float = 0.0,
        l2_regularization_strength: float = 0.0,
        use_locking: bool = False,
        name: str | None = None,
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: float = 0.0,
    ) -> None: ...

    def _update(self, group: Group, run: Tensors) -> None:
        """Apply the rule; at rate 0, change nothing."""
        if group["lr"] != 0:
            super()._update(group, run)
