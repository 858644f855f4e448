"""The multitask wrapper for v1-style optimizers."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.tf import wrapper as base
from lockstep.tf.shared import gradients as tensors
from lockstep.tf.shared.gradients import name_of
from lockstep.tf.wrapper import Optimizer, Pairs, Wrapper, with_strict


@with_strict
class MultitaskOptimizerWrapper(Wrapper):
    """Skip the update of a variable and its state if its gradient is all zero.

    For each (gradient g, variable w): if g has no nonzero element, neither w nor any of
    its state changes, as if g were absent; otherwise ``opt`` updates them as usual.
    -0.0 is zero, NaN and infinity are not. The duplicate rows of a sparse gradient are
    summed before the test. TensorFlow's kernels flush float32 subnormals to zero, so
    these count as zero.

    Powers that all variables share (Adam's) advance if any variable is updated;
    ``global_step`` advances at every call.

    Args:
        opt: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one.

    Attributes:
        inner_optimizer: ``opt``.
        last_step: what the last eager step did, a
            :class:`~lockstep.interface.StepReport`. Steps in graphs and inside of a
            ``tf.function`` are not reported.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no v1 optimizer but, for example,
            a Keras optimizer.

    Origin: ``tf.contrib.opt.MultitaskOptimizerWrapper``, TensorFlow 1.15. In the
    default mode ``opt`` is not modified, wrappers nest to any depth, wrappers inside
    see an all-zero gradient as absent, and shared powers wait.

    Example:
        >>> w = tf.Variable([1.0, 2.0])
        >>> opt = MultitaskOptimizerWrapper(MomentumOptimizer(0.5, momentum=0.9))
        >>> _ = opt.apply_gradients([(tf.constant([1.0, 0.0]), w)])
        >>> _ = opt.apply_gradients([(tf.constant([0.0, 0.0]), w)])
        >>> w.numpy().tolist(), opt.get_slot(w, "momentum").numpy().tolist()
        ([0.5, 2.0], [1.0, 0.0])
    """

    def __init__(self, opt: Optimizer) -> None:
        base.require_optimizer(opt, self.owner)
        super().__init__(opt)

    def _prepared(self, pairs: Pairs) -> Pairs:
        return self._unscaled(pairs)

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        if not tf.executing_eagerly():
            self.last_step = NO_EAGER_STEP
            return self._apply_in_graph(pairs, global_step, name)
        self.last_step, zero = report(pairs)
        if not self.last_step.applied:
            return base.advance(global_step)
        nonzero = [pair for pair, skip in zip(pairs, zero, strict=True) if not skip]
        return self._apply_reported(nonzero, global_step, name)

    def _apply_reported(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take the wrapped optimizer's step; report if a wrapper inside skipped it."""
        done = self.apply_inside(pairs, global_step, name)
        inner = getattr(self.inner_optimizer, "last_step", None)
        if inner is not None and not inner.applied:
            names = tuple(name_of(variable) for _, variable in pairs)
            skipped = tuple(dict.fromkeys([*self.last_step.skipped, *names]))
            reason = f"{self.last_step.reason}; {inner.reason}"
            self.last_step = inner._replace(reason=reason, skipped=skipped)
        return done

    def _apply_in_graph(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation:
        """Build three updates, one of which runs: all variables, some, or none."""
        present = [(g, v) for g, v in pairs if g is not None]
        gradients, variables = map(list, zip(*present, strict=True))
        base.require_resources(variables)
        self.create_slots(variables)

        def update_all() -> tf.Operation | None:
            return self.apply_inside(pairs, global_step)

        def leave_zeros_out() -> tf.Operation | None:
            zero = tensors.all_zero_flags(gradients)

            def update_some() -> tf.Operation | None:
                references = [variable.ref() for variable in variables]
                flags = dict(zip(references, tf.unstack(zero), strict=True))

                def is_zero(gradient: tensors.Values, variable: Any) -> tf.Tensor:
                    # A wrapper inside may update variables of its own.
                    flag = flags.get(variable.ref())
                    return tensors.is_all_zero(gradient) if flag is None else flag

                with base.routed(self.base_optimizer, is_zero):
                    return update_all()

            update_none = partial(base.advance, global_step)
            return tf.cond(tf.reduce_all(zero), update_none, update_some)

        def update() -> tf.Operation | None:
            rare = tensors.some_may_be_zero(gradients)
            done = tf.cond(rare, base.set_apart(leave_zeros_out), update_all)
            return tf.group(done, name=name or self.get_name())

        return base.as_train_op(update)


def report(pairs: Pairs) -> tuple[StepReport, list[bool]]:
    """Return an eager step's report, and for each pair whether its gradient is zero."""
    present = [gradient for gradient, _ in pairs if gradient is not None]
    squares = np.zeros(0)
    if present:
        squares = tf.stack([tensors.square_sum(g) for g in present]).numpy()
    zeros, nonfinite = [], 0
    for gradient, square in zip(present, squares, strict=True):
        zeros.append(square == 0 and bool(tensors.is_all_zero(gradient)))
        if not np.isfinite(square):
            nonfinite += not tensors.finite_flags([gradient]).numpy().all()
    flags = iter(zeros)
    zero = [gradient is not None and next(flags) for gradient, _ in pairs]
    both = zip(*pairs, strict=True)
    return tensors.multitask_report(*both, zero, nonfinite), zero
