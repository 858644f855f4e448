"""The multitask wrapper, for Keras 3 optimizers."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep.keras3.gradients import Gradient, Pairs, value_of
from lockstep.keras3.wrapper import (
    ACCUMULATOR,
    AVERAGE,
    Wrapper,
    preserved,
    refuse_several,
)
from lockstep.tf.shared.gradients import (
    all_zero_flags,
    densify,
    key_of,
    multitask_report,
    name_of,
    some_may_be_zero,
)


@keras.saving.register_keras_serializable(package="lockstep")
class MultitaskOptimizerWrapper(Wrapper):
    """Skip the update of a variable and its state if its gradient is all zero.

    For each (gradient g, variable w): if g has no nonzero element, neither w nor any of
    its state changes, as if g were absent; otherwise ``opt`` updates them as usual.
    -0.0 is zero, NaN and infinity are not. The duplicate rows of a sparse gradient are
    summed before the test. TensorFlow's kernels flush float32 subnormals to zero, so
    these count as zero.

    Weight decay is skipped too. With Keras' gradient accumulation the sum is tested, at
    the step that applies it.

    ``iterations`` counts every call, even if every gradient is zero: it is Keras'
    global step, which schedules read. Keras' Adam computes its bias correction from it,
    so the correction advances even for skipped variables.

    Args:
        opt: any Keras optimizer, or a wrapper. It may already be built.

    Attributes:
        inner_optimizer: ``opt``.
        last_step: what the last eager step did, a
            :class:`~lockstep.interface.StepReport`. Steps in graphs and inside of a
            ``tf.function``, where ``fit`` takes its own, are not reported.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no ``keras.optimizers.Optimizer``.
        UnsupportedError: a ValueError; ``keras.optimizers.MultiOptimizer``. Wrap the
            optimizers inside it instead.

    Origin: TensorFlow 1.15, ``tf.contrib.opt.MultitaskOptimizerWrapper``, which changes
    ``opt`` in place.

    Example:
        >>> weight = keras.Variable([1.0, 2.0])
        >>> sgd = keras.optimizers.SGD(0.5, momentum=0.5)
        >>> optimizer = MultitaskOptimizerWrapper(sgd)
        >>> for gradient in ([1.0, 0.0], [0.0, 0.0]):
        ...     optimizer.apply([keras.ops.array(gradient)], [weight])
        >>> weight.numpy(), optimizer.get_slot(weight, "momentum").numpy()
        (array([0.5, 2. ], dtype=float32), array([-0.5,  0. ], dtype=float32))
    """

    def __init__(self, opt: keras.optimizers.Optimizer) -> None:
        super().__init__(opt)
        refuse_several(self, type(self).__name__, "wrap each optimizer inside it")

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the wrapped optimizer's step on the variables that are not skipped.

        A graph contains three steps, of which one runs. They update all variables, some
        of them, or none. In most steps no gradient is all zero, so the first one runs,
        and only one condition is computed.
        """
        present, tested = self._tested(gradients, variables)
        if tf.executing_eagerly():
            self._update_eagerly(gradients, variables, present, tested)
            return

        def skip_zeros() -> None:
            zero = self._skipped(all_zero_flags(tested))
            if self.use_ema:  # The averages follow the variables at every step.
                self._update_some(present, zero)
            else:
                some = lambda: self._update_some(present, zero)  # noqa: E731
                tf.cond(tf.reduce_all(zero), self._count, some)

        tf.cond(some_may_be_zero(tested), skip_zeros, lambda: self._update(present))

    def _update(self, pairs: Pairs) -> None:
        """Take the wrapped optimizer's step."""
        self.inner_optimizer.apply(*map(list, zip(*pairs, strict=True)))

    def _update_some(self, present: Pairs, zero: tf.Tensor) -> None:
        """Take the wrapped optimizer's step; restore the skipped variables."""
        with preserved([self._state(variable) for _, variable in present], zero):
            self._update(present)

    def _update_eagerly(
        self,
        gradients: list[Gradient],
        variables: list[Any],
        present: Pairs,
        tested: list[Gradient],
    ) -> None:
        """Take the step on the pairs that are not skipped, and report it."""
        zero = np.zeros(len(present), bool)
        if some_may_be_zero(tested):
            zero = all_zero_flags(tested).numpy()
        self._report(gradients, variables, present, tested, zero)
        if zero.any():
            zero = self._skipped(tf.constant(zero)).numpy()
        others = [pair for pair, skip in zip(present, zero, strict=True) if not skip]
        if zero.any() and self.use_ema:
            self._update_some(present, tf.constant(zero))
        elif others:
            self._update(others)
        else:
            self._count()
        inner = getattr(self.inner_optimizer, "last_step", None)
        if self.last_step.applied and inner is not None and not inner.applied:
            reason = f"{self.last_step.reason}; {inner.reason}"
            names = tuple(map(name_of, variables))
            self._set_report(inner._replace(reason=reason, skipped=names))

    def _tested(
        self, gradients: list[Gradient], variables: list[Any]
    ) -> tuple[Pairs, list[Gradient]]:
        """Return the pairs with a gradient, and for each the tensor or sum to test."""
        pairs = list(zip(gradients, variables, strict=True))
        if not self.gradient_accumulation_steps:
            pairs = [(g, v) for g, v in pairs if g is not None]
            return pairs, [getattr(g, "values", g) for g, _ in pairs]
        pairs = [(densify(g, v), v) for g, v in pairs]
        sums = [value_of(self._slots.of(v)[ACCUMULATOR]) for _, v in pairs]
        # The sum of a half-precision variable with a master is float32.
        both = zip(pairs, sums, strict=True)
        return pairs, [tf.cast(g, s.dtype) + s for (g, _), s in both]

    def _skipped(self, zero: tf.Tensor) -> tf.Tensor:
        """Return which variables to skip; sums only at the step that applies them."""
        period = self.gradient_accumulation_steps
        if not period:
            return zero
        return tf.logical_and(zero, tf.equal((self._iterations.value + 1) % period, 0))

    def _count(self) -> None:
        """Count a step without updates, which ends a period of accumulation.

        Its sums may be zero because gradients cancel, so they are cleared, as in Keras.
        Nadam's product of momenta, which follows the count, is changed by Keras' update
        of no variables.
        """
        self.base_optimizer._backend_update_step([], [], 0.0)
        self._iterations.assign_add(1)
        if self.gradient_accumulation_steps:
            for variable in self._trainable_variables:
                total = value_of(self._slots.of(variable)[ACCUMULATOR])
                total.assign(tf.zeros_like(total))

    def _state(self, variable: Any) -> list[tf.Variable]:
        """Return a variable and its slots; with a master, both and their slots."""

        def slots(of: Any) -> list[Any]:
            # The average follows the variable, and Keras resets the accumulator.
            left_out = ACCUMULATOR, AVERAGE
            named = self._slots.of(of).items()
            return [slot for name, slot in named if name not in left_out]

        variable = self._slots.model_of(variable)
        parts = slots(variable)
        # A slot may be a master or a shared weight, which has its own slots.
        parts += [further for slot in parts for further in slots(slot)]
        return [value_of(part) for part in (variable, *parts)]

    def _report(
        self,
        gradients: list[Gradient],
        variables: list[Any],
        present: Pairs,
        tested: list[Gradient],
        zero: np.ndarray,
    ) -> None:
        """Report which variables an eager step does not update, and why."""
        flags = {key_of(v): flag for (_, v), flag in zip(present, zero, strict=True)}
        zeros = [flags.get(key_of(variable), False) for variable in variables]
        sums = tf.stack([tf.reduce_sum(tf.cast(g, tf.float32)) for g in tested])
        suspects = np.flatnonzero(~np.isfinite(sums.numpy()))
        bad = sum(not np.isfinite(tested[k].numpy()).all() for k in suspects)
        self._set_report(multitask_report(gradients, variables, zeros, bad))
