"""The optimizers of TensorFlow 1 over NumPy variables: pure rules, and one loop.

A rule is a function of hyper-parameters ``h``, weights, slots and a gradient; it
returns new weights and slots. All of them have one dtype. The order of the operations
is that of TensorFlow's kernels, so the results are the same to the bit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from lockstep.errors import DtypeError, OutOfRangeError
from lockstep.interface import NO_STEP, Array, Gradient, Rows, StepReport
from lockstep.optimizers import OPTIMIZERS, OptimizerSpec
from lockstep.reference import arrays
from lockstep.reference.arrays import Pairs, Variable, sum_duplicates

Slots = dict[str, Array]
"""TF slot name -> array of the variable's shape."""
Updated = tuple[Array, Slots]
Rule = Callable[[Any, Array, Slots, Any], Updated]


# -- rules -----------------------------------------------------------------------------


def descent(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """w -= lr g."""
    return w - h.learning_rate * g, slots


def descent_rows(h: Any, w: Array, slots: Slots, g: Rows) -> Updated:
    """w[i] -= lr g[k] for each occurrence k in order; duplicates are not summed."""
    w = w.copy()
    for index, row in zip(g.indices.tolist(), g.values, strict=True):
        w[index] = w[index] - h.learning_rate * row
    return w, slots


def momentum(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """a = mu a + g; w -= lr a. Nesterov: w -= g lr + a mu lr, with the new a."""
    a = slots["momentum"] * h.momentum + g
    change = a * h.learning_rate
    if h.use_nesterov:
        change = g * h.learning_rate + a * h.momentum * h.learning_rate
    return w - change, {"momentum": a}


def momentum_rows(h: Any, w: Array, slots: Slots, g: Rows) -> Updated:
    """Apply the rule only to the gradient's rows; other momentum does not decay.

    Nesterov has the order of the sparse kernel: w -= lr g + (lr mu) a.
    """
    rate, mu = h.learning_rate, h.momentum
    indices, rows, _ = sum_duplicates(g)
    w, a = w.copy(), slots["momentum"].copy()
    a[indices] = a[indices] * mu + rows
    change = rate * a[indices]
    if h.use_nesterov:
        change = rate * rows + (rate * mu) * a[indices]
    w[indices] -= change
    return w, {"momentum": a}


def adam(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """m += (g-m)(1-b1); v += (g^2-v)(1-b2); w -= m a / (sqrt(v) + eps)."""
    m = slots["m"] + (g - slots["m"]) * (1 - h.beta1)
    v = slots["v"] + (g * g - slots["v"]) * (1 - h.beta2)
    change = (m * adam_step_size(h)) / (np.sqrt(v) + h.epsilon)
    return w - change, {"m": m, "v": v}


def adam_rows(h: Any, w: Array, slots: Slots, g: Rows) -> Updated:
    """m = b1 m, then m[i] += (1-b1) g; v likewise. Not lazy: every row of w changes."""
    indices, rows, _ = sum_duplicates(g)
    m, v = slots["m"] * h.beta1, slots["v"] * h.beta2
    m[indices] += rows * (1 - h.beta1)
    v[indices] += (rows * rows) * (1 - h.beta2)
    change = adam_step_size(h) * m / (np.sqrt(v) + h.epsilon)
    return w - change, {"m": m, "v": v}


def adam_step_size(h: Any) -> Any:
    """Return a = lr sqrt(1 - b2^t) / (1 - b1^t)."""
    return h.learning_rate * np.sqrt(1 - h.beta2_power) / (1 - h.beta1_power)


def adamw(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """w -= weight_decay w, then Adam."""
    return adam(h, w - h.weight_decay * w, slots, g)


def adamw_rows(h: Any, w: Array, slots: Slots, g: Rows) -> Updated:
    """w[i] -= weight_decay w[i] once per row of the gradient, then sparse Adam."""
    indices = sum_duplicates(g).indices
    decayed = w.copy()
    decayed[indices] -= h.weight_decay * w[indices]
    return adam_rows(h, decayed, slots, g)


def adagrad(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """acc += g^2; w -= g lr rsqrt(acc)."""
    accumulator = slots["accumulator"] + g * g
    return w - g * h.learning_rate * rsqrt(accumulator), {"accumulator": accumulator}


def rmsprop(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """rms += (g^2-rms)(1-d); mom = mom mu + g lr/sqrt(rms [- mg^2] + eps); w -= mom."""
    rms = slots["rms"] + (g * g - slots["rms"]) * (1 - h.decay)
    new, spread = {"rms": rms}, rms
    if h.centered:
        new["mg"] = slots["mg"] + (g - slots["mg"]) * (1 - h.decay)
        spread = rms - new["mg"] * new["mg"]
    step = (g * h.learning_rate) / np.sqrt(spread + h.epsilon)
    new["momentum"] = slots["momentum"] * h.momentum + step
    return w - new["momentum"], new


def rmsprop_of_rows(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """rms = rms d + g^2 (1-d); mom = mom mu + rsqrt(rms [- mg^2] + eps) lr g."""
    rms = slots["rms"] * h.decay + g * g * (1 - h.decay)
    new, spread = {"rms": rms}, rms
    if h.centered:
        new["mg"] = slots["mg"] * h.decay + g * (1 - h.decay)
        spread = rms - new["mg"] * new["mg"]
    step = rsqrt(spread + h.epsilon) * h.learning_rate * g
    new["momentum"] = slots["momentum"] * h.momentum + step
    return w - new["momentum"], new


def ftrl(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """As :func:`ftrl_of_rows`; strict: the weight is 0 where linear is NaN."""
    w, slots = ftrl_of_rows(h, w, slots, g)
    if h.strict:  # ftrl-nan
        w = np.where(np.isnan(slots["linear"]), np.zeros((), w.dtype), w)
    return w, slots


def ftrl_of_rows(h: Any, w: Array, slots: Slots, g: Array) -> Updated:
    """G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p)/lr w; accum = n;

    w = (sign(linear) l1 - linear) / (n^-p/lr + 2 l2) where abs(linear) > l1, else 0.
    """
    rate, l1 = h.learning_rate, h.l1_regularization_strength
    shrinkage = 2 * h.l2_shrinkage_regularization_strength
    accum, linear = slots["accum"], slots["linear"]
    new_accum = accum + g * g
    old_root, new_root = ftrl_root(h, accum), ftrl_root(h, new_accum)
    # Without shrinkage, skip 0 * w, which is NaN where w is infinite.
    shrunk = g + shrinkage * w if shrinkage else g
    linear = linear + (shrunk - (new_root - old_root) / rate * w)
    pull = new_root / rate + 2 * h.l2_regularization_strength
    moved = (np.sign(linear) * l1 - linear) / pull
    still = np.abs(linear) <= l1  # False where linear is NaN.
    w = np.where(still, np.zeros((), w.dtype), moved)
    return w, {"accum": new_accum, "linear": linear}


def ftrl_root(h: Any, accum: Array) -> Array:
    """Return accum^-p; the power is computed in float64 and rounded once."""
    if h.learning_rate_power == -0.5:
        return np.sqrt(accum)
    power = -np.asarray(h.learning_rate_power, np.float64)
    return np.power(accum.astype(np.float64), power).astype(accum.dtype)


def rsqrt(values: Array) -> Array:
    """Return 1 / sqrt(x), both operations rounded to the dtype of ``values``."""
    return np.asarray(values.dtype.type(1) / np.sqrt(values))


def of_rows(rule: Rule) -> Rule:
    """Return a rule of sparse gradients: ``rule`` for the rows that they name."""

    def apply(h: Any, w: Array, slots: Slots, g: Rows) -> Updated:
        indices, rows, _ = sum_duplicates(g)
        old = {name: values[indices] for name, values in slots.items()}
        moved, changed = rule(h, w[indices], old, rows)
        w, slots = w.copy(), {name: values.copy() for name, values in slots.items()}
        w[indices] = moved
        for name, values in changed.items():
            slots[name][indices] = values
        return w, slots

    return apply


# -- optimizers and wrappers -----------------------------------------------------------


class Optimizer:
    """Base of every optimizer and wrapper of the reference.

    NumPy has no automatic differentiation, so a loss is a function that returns the
    gradients themselves, one for each variable of ``var_list``. A gradient is an array
    or :class:`~lockstep.interface.Rows` of its variable's shape and dtype, or None. It
    may also be a function from d loss (1, or the loss scale) to these, for sums whose
    terms must be scaled first, as with a penalty.
    """

    strict = False
    takes_wide = False
    """Whether float16 variables may have float32 gradients."""

    def compute_gradients(
        self, loss: Callable[[], Iterable[Any]], var_list: Iterable[Variable]
    ) -> Pairs:
        """Pair the gradients that ``loss()`` returns with ``var_list``.

        Raises:
            ValueError: the number of gradients differs from that of the variables.
        """
        gradients = [g(np.float32(1)) if callable(g) else g for g in loss()]
        return list(zip(gradients, var_list, strict=True))

    def minimize(
        self,
        loss: Callable[[], Iterable[Any]],
        global_step: Variable | None = None,
        var_list: Iterable[Variable] = (),
    ) -> None:
        """Call ``compute_gradients`` and pass the result to ``apply_gradients``."""
        self.apply_gradients(self.compute_gradients(loss, var_list), global_step)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Variable]],
        global_step: Variable | None = None,
    ) -> None:
        """Update every variable that has a gradient, then the global step.

        Args:
            grads_and_vars: iterable of (gradient, variable).
            global_step: an integer variable.

        Raises:
            NoGradientsError: a ValueError; an empty list, or every gradient is None.
            ShapeError, DtypeError: a gradient does not fit its variable.
        """
        owner = type(self).__name__
        pairs = arrays.check_pairs(grads_and_vars, owner, self.takes_wide)
        if global_step is not None and not isinstance(global_step, Variable):
            raise DtypeError(
                f"{owner}: expected global_step to be None or an integer variable, got "
                f"{global_step!r}; make one with Variable('global_step', 0, np.int64)."
            )
        self.apply(pairs, global_step)

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Take a step with checked pairs."""
        raise NotImplementedError

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return the state array ``name`` of ``var``; None before its first update."""
        raise NotImplementedError


class Wrapper(Optimizer):
    """Base of the wrappers; the slots are those of the optimizer inside."""

    inner_optimizer: Optimizer
    last_step: StepReport = NO_STEP

    def compute_gradients(
        self, loss: Callable[[], Iterable[Any]], var_list: Iterable[Variable]
    ) -> Pairs:
        """Return the pairs of the wrapped optimizer, which may scale the loss."""
        return self.inner_optimizer.compute_gradients(loss, var_list)

    def report(self, pairs: Pairs, ending: str) -> StepReport:
        """Return the inner optimizer's report, or a plain one's, with an ending."""
        inner: StepReport | None = getattr(self.inner_optimizer, "last_step", None)
        if inner is not None:
            return inner._replace(reason=f"{inner.reason}; {ending}")
        skipped = tuple(v.name for gradient, v in pairs if gradient is None)
        updated = "every gradient was present"
        if skipped:
            updated = f"of {len(pairs)} gradients {len(skipped)} absent"
        return StepReport(True, f"{updated}; {ending}", skipped)

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return a slot of the wrapped optimizer."""
        return self.inner_optimizer.get_slot(var, name)


class RuleOptimizer(Optimizer):
    """An optimizer with slots that applies one of the rules above.

    Hyper-parameters, gradient and variable are cast to ``working_dtype``, which is also
    that of the slots. The new value is rounded to the variable's dtype.

    Attributes:
        spec: names, defaults and ranges of the arguments, and the slots.
        arguments: the hyper-parameters by name.
        slots: variable -> its slots.
        shared: name -> float32 scalar that all variables share, such as
            ``beta1_power``.
        sums_duplicates: whether the rule sums rows that share an index.
    """

    spec: OptimizerSpec
    rule: Rule
    rule_of_rows: Rule
    sums_duplicates = True
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls) -> None:
        if "spec" in vars(cls):
            kind = inspect.Parameter.KEYWORD_ONLY
            strict = inspect.Parameter("strict", kind, default=False)
            own = cls.spec.signature.parameters.values()
            cls.__signature__ = inspect.Signature([*own, strict])

    def __init__(self, *args: Any, strict: bool = False, **kwargs: Any) -> None:
        self.strict = strict
        self.arguments: Mapping[str, Any] = self.spec.bind(args, kwargs)
        self.slots: dict[Variable, Slots] = {}
        self.shared: Slots = {
            name: np.asarray(self.arguments[start], np.float32)
            for name, start in (self.spec.shared or {}).items()
        }

    def apply(self, pairs: Pairs, global_step: Variable | None) -> None:
        """Update each variable, then the scalars that all share."""
        for gradient, variable in pairs:
            if gradient is not None:
                self.update(gradient, variable)
        self.advance_shared()
        arrays.advance(global_step)

    def update(self, gradient: Array | Rows, variable: Variable) -> None:
        """Apply the rule; the first update of a variable creates its slots."""
        slots = self.slots.get(variable)
        if slots is None:
            slots = self.initial_slots(variable)
        rule = self.rule_of_rows if isinstance(gradient, Rows) else self.rule
        working = self.working_dtype(variable.dtype)
        with np.errstate(all="ignore"):
            value, self.slots[variable] = rule(
                self.hyper(working, self.shared),
                np.asarray(variable.value, working),
                slots,
                arrays.cast(gradient, working),
            )
            variable.value = value.astype(variable.dtype, copy=False)

    def working_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return the dtype of the arithmetic for a variable: at least float32."""
        if self.strict:  # half-precision-scalars: the usual beta2 is 1 in bfloat16.
            return dtype
        return arrays.wide_dtype(dtype)

    def hyper(self, dtype: np.dtype[Any], shared: Slots) -> Any:
        """Return the hyper-parameters and the shared scalars in ``dtype``."""
        numbers = {
            name: value if isinstance(value, bool) else dtype.type(value)
            for name, value in self.arguments.items()
        }
        powers = {name: value.astype(dtype)[()] for name, value in shared.items()}
        return SimpleNamespace(**numbers, **powers, strict=self.strict)

    def initial_slots(self, variable: Variable) -> Slots:
        """Return new slots for a variable, filled with their initial values."""
        wide = arrays.wide_dtype(variable.dtype)
        working = self.working_dtype(variable.dtype)
        return {
            slot.name: np.full(
                () if slot.scalar else variable.shape,
                self.spec.initial_value(slot, self.arguments),
                wide if slot.scalar else working,
            )
            for slot in self.spec.active_slots(self.arguments)
        }

    def advance_shared(self) -> None:
        """Multiply each shared power by its parameter, in float32."""
        for name, factor in (self.spec.shared or {}).items():
            self.shared[name] = self.shared[name] * np.float32(self.arguments[factor])

    def get_slot(self, var: Variable, name: str) -> Array | None:
        """Return the state array ``name`` of ``var``; None before its first update."""
        return self.slots.get(var, {}).get(name)


class GradientDescentOptimizer(RuleOptimizer):
    """``tf.train.GradientDescentOptimizer`` of TensorFlow 1.15: w -= lr g.

    The arguments of this and of the other optimizers are the original's. With
    ``strict`` they compute in the variable's dtype, also in half precision; by default
    at least in float32. A number out of its range is an OutOfRangeError (a ValueError).
    If a sparse gradient lists a row several times, it is updated each time.

    Example:
        >>> w = Variable("w", np.float32([1.0, 2.0]))
        >>> GradientDescentOptimizer(0.5).minimize(lambda: [2 * w.value], var_list=[w])
        >>> w.value.tolist()
        [0.0, 0.0]
    """

    spec = OPTIMIZERS["GradientDescent"]
    rule, rule_of_rows = staticmethod(descent), staticmethod(descent_rows)
    sums_duplicates = False


class MomentumOptimizer(RuleOptimizer):
    """``tf.train.MomentumOptimizer`` of TensorFlow 1.15; Sutskever et al. 2013.

    a = mu a + g; w -= lr a. Nesterov: w -= lr g + lr mu a, with a already new.
    """

    spec = OPTIMIZERS["Momentum"]
    rule, rule_of_rows = staticmethod(momentum), staticmethod(momentum_rows)


class AdamOptimizer(RuleOptimizer):
    """``tf.train.AdamOptimizer`` of TensorFlow 1.15; Kingma and Ba 2015.

    m += (1 - b1) (g - m); v += (1 - b2) (g^2 - v);
    w -= lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + eps).

    All variables share the powers of beta, and epsilon is added to the root of the
    uncorrected v ("epsilon hat").
    """

    spec = OPTIMIZERS["Adam"]
    rule, rule_of_rows = staticmethod(adam), staticmethod(adam_rows)


class AdamWOptimizer(RuleOptimizer):
    """``tf.contrib.opt.AdamWOptimizer`` of TensorFlow 1.15.

    w -= weight_decay w, then as :class:`AdamOptimizer`. Unlike in Loshchilov and Hutter
    2019, the decay is not multiplied by the rate.
    """

    spec = OPTIMIZERS["AdamW"]
    rule, rule_of_rows = staticmethod(adamw), staticmethod(adamw_rows)


class AdagradOptimizer(RuleOptimizer):
    """``tf.train.AdagradOptimizer`` of TensorFlow 1.15; Duchi et al. 2011.

    acc += g^2; w -= lr g / sqrt(acc). There is no epsilon.
    """

    spec = OPTIMIZERS["Adagrad"]
    rule, rule_of_rows = staticmethod(adagrad), staticmethod(of_rows(adagrad))


class RMSPropOptimizer(RuleOptimizer):
    """``tf.train.RMSPropOptimizer`` of TensorFlow 1.15; Tieleman and Hinton 2012.

    rms += (1 - d) (g^2 - rms); mom = mu mom + lr g / sqrt(rms + eps); w -= mom.
    Centered: mg += (1 - d) (g - mg), and the root is that of rms - mg^2 + eps.
    The mean square starts at one.
    """

    spec = OPTIMIZERS["RMSProp"]
    rule, rule_of_rows = staticmethod(rmsprop), staticmethod(of_rows(rmsprop_of_rows))


class FtrlOptimizer(RuleOptimizer):
    """``tf.train.FtrlOptimizer`` of TensorFlow 1.15; McMahan et al. 2013.

    G = g + 2 s w; n = accum + g^2; linear += G - (n^-p - accum^-p) / lr w; accum = n;
    w = (sign(linear) l1 - linear) / (n^-p / lr + 2 l2) where abs(linear) > l1, else 0.
    At rate 0 nothing changes.

    Strict: a step at rate 0 is an OutOfRangeError (a ValueError), and the weight of a
    dense gradient of NaN becomes 0.
    """

    spec = OPTIMIZERS["Ftrl"]
    rule, rule_of_rows = staticmethod(ftrl), staticmethod(of_rows(ftrl_of_rows))

    def update(self, gradient: Array | Rows, variable: Variable) -> None:
        """Apply the rule; at rate 0 nothing changes (strict: ValueError)."""
        if self.arguments["learning_rate"] != 0:
            super().update(gradient, variable)
        elif self.strict:  # ftrl-zero-rate
            raise OutOfRangeError(
                "FtrlOptimizer: expected learning_rate > 0, got 0; the original fails "
                "at rate 0; leave strict off to skip it."
            )
