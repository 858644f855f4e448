"""The multitask wrapper and its clipping function, for v1-style optimizers."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.messages import multitask as words
from lockstep.messages import tf as tf_host
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.nouns import TF
from lockstep.quirks import quirks_of
from lockstep.tf.base.hooks import (
    Skip,
    make_conditional,
    require_resources,
    routed,
    set_apart,
)
from lockstep.tf.base.pairs import (
    Gradient,
    Pairs,
    as_counter,
    as_gradient,
    as_variable,
    check_pairs,
    name_of,
)
from lockstep.tf.base.replica_sums import refuse_cross_replica
from lockstep.tf.base.wrapper import Optimizer, Wrapper, advance, as_train_op, is_keras
from lockstep.tf.shared.clipping.clip_gradients import clip, refuse_dtypes
from lockstep.tf.shared.tensors.gradients import check_rows, check_shapes
from lockstep.tf.shared.tensors.zero_test import (
    all_zero_flags,
    is_all_zero,
    some_may_be_zero,
)

__all__ = ["MultitaskOptimizerWrapper", "clip_gradients_by_global_norm"]

SUMMED_HOOKS = (
    "_apply_dense",
    "_resource_apply_dense",
    "_apply_sparse",
    "_resource_apply_sparse",
)
"""The hooks that the original replaced. Gradient descent does not sum duplicate rows
and calls neither of the sparse hooks, so its sparse gradients were never tested."""


@documented
class MultitaskOptimizerWrapper(Wrapper):
    """...

    Powers that all variables share (Adam's) advance if any variable is updated;
    ``global_step`` advances at every call.

    Args:
        opt: a ``tf.compat.v1.train.Optimizer``, or a wrapper around one.
        strict: reproduce the original bit for bit, with its quirks: the hooks of
            ``opt`` are replaced permanently, which has no effect around another
            wrapper; the shared powers advance on every call; a multitask wrapper as
            ``opt`` raises.

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

    owner = words.WRAPPER

    def __init__(self, opt: Optimizer, strict: bool = False) -> None:
        quirks = quirks_of(strict)
        nesting = quirks.multitask_nesting
        refused = nesting and isinstance(opt, MultitaskOptimizerWrapper)
        if is_keras(opt):
            raise tf_host.KERAS_OPTIMIZER.error(
                owner=words.WRAPPER, got=type(opt).__name__
            )
        if refused or not isinstance(opt, Optimizer):
            raise words.not_an_optimizer(opt, TF, nesting)
        super().__init__(opt)
        self.strict = strict
        self.last_step: StepReport = NO_EAGER_STEP
        if quirks.multitask_in_place:
            # The original replaced these permanently. Around another wrapper, which
            # never calls its own hooks, this has no effect.
            needs_shape = quirks.multitask_dense_shape
            is_zero = functools.partial(is_zero_as_original, needs_shape)
            make_conditional(opt, SUMMED_HOOKS, is_zero)

    @documented
    @tf.autograph.experimental.do_not_convert
    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Gradient, Any]],
        global_step: tf.Variable | None = None,
        name: str | None = None,
    ) -> tf.Operation | None:
        """Pass the gradients that are not all zero to the wrapped optimizer.

        Args:
            global_step: integer variable, incremented at every call.

        Returns:
            In a graph the operation of the update; not useful in eager mode.

        Raises:
            ...
            DtypeError: ``global_step`` cannot count.
            UnsupportedError: reference variables under control flow v2.
        """
        pairs = check_pairs(grads_and_vars, words.WRAPPER, self.takes_wide)
        unchecked = self._quirks.arguments_unchecked
        global_step = as_counter(global_step, words.WRAPPER, unchecked)
        if self._quirks.multitask_in_place:
            refuse_cross_replica(words.WRAPPER)
            return self._apply(pairs, global_step, name)
        pairs = self._unscaled(pairs)
        return self.apply_together(self._apply, pairs, global_step, name)

    def _apply(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Take a step; by default the gradients are summed over the replicas."""
        if tf.executing_eagerly():
            return self._apply_eagerly(pairs, global_step, name)
        self.last_step = NO_EAGER_STEP
        quirks = self._quirks
        if quirks.multitask_in_place and quirks.multitask_shared_state:
            return self.apply_inside(pairs, global_step, name)
        return self._apply_in_graph(pairs, global_step, name)

    def _apply_eagerly(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation | None:
        """Read the flags and drop the pairs whose gradient is all zero."""
        present = [gradient for gradient, _ in pairs if gradient is not None]
        absent = np.array([gradient is None for gradient, _ in pairs])
        zero = np.zeros_like(absent)
        if some_may_be_zero(present):
            zero[~absent] = all_zero_flags(present)
        names = [name_of(variable) for _, variable in pairs]
        self.last_step = words.report(names, zero.tolist(), absent.tolist())
        quirks, applied = self._quirks, self.last_step.applied
        hands_on_all = quirks.multitask_in_place and (
            quirks.multitask_shared_state or applied
        )
        if not (hands_on_all or applied):
            return advance(global_step)
        dropped = np.zeros_like(zero) if hands_on_all else zero
        nonzero = [pair for pair, out in zip(pairs, dropped, strict=True) if not out]
        done = self.apply_inside(nonzero, global_step, name)
        inner = getattr(self.inner_optimizer, "last_step", None)
        self.last_step = words.report_through(self.last_step, inner, names)
        return done

    def _apply_in_graph(
        self, pairs: Pairs, global_step: tf.Variable | None, name: str | None
    ) -> tf.Operation:
        """Build three updates, one of which runs: all variables, some, or none.

        Most steps have no all-zero gradient. They run the plain update behind a single
        condition. Only the update of some variables has a condition per variable.
        """
        present = [(g, v) for g, v in pairs if g is not None]
        gradients, variables = map(list, zip(*present, strict=True))
        require_resources(variables)
        self.create_slots(variables)

        def update_all() -> tf.Operation:
            return self.apply_inside(pairs, global_step)

        def update_none() -> tf.Operation:
            return advance(global_step)

        def leave_zeros_out() -> tf.Operation:
            zero = all_zero_flags(gradients)

            def update_some() -> tf.Operation:
                with routed(self.base_optimizer, known_zero(variables, zero)):
                    return update_all()

            return tf.cond(tf.reduce_all(zero), update_none, update_some)

        def update() -> tf.Operation:
            rare = some_may_be_zero(gradients)
            done = tf.cond(rare, set_apart(leave_zeros_out), update_all)
            return tf.group(done, name=name or self.get_name())

        return as_train_op(update)


@documented
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Gradient, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[list[tuple[Gradient, Any]], tf.Tensor]:
    """...

    Args:
        error_if_nonfinite: raise instead of returning NaN; in a graph an assertion,
            which raises ``tf.errors.InvalidArgumentError`` when it runs.

    Origin: ``tf.contrib.opt.clip_gradients_by_global_norm``, TensorFlow 1.15. The
    default mode computes the norm in float32 and accepts sparse and mixed gradients.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = [(tf.constant([3.0, 4.0]), w)]
        >>> clipped, norm = clip_gradients_by_global_norm(pairs, 2.5)
        >>> float(norm), clipped[0][0].numpy().tolist()
        (5.0, [1.5, 2.0])
    """
    pairs = as_pairs(gradients_variables, words.CLIP)
    gradients = [as_gradient(g, v, words.CLIP) for g, v in pairs]
    quirks = quirks_of(strict)
    if not quirks.multitask_clip_dtypes:
        refuse_dtypes(gradients)
    if not quirks.arguments_unchecked:
        check_fit(gradients, [as_variable(variable) for _, variable in pairs])
    clipped, norm = clip(gradients, clip_norm, error_if_nonfinite, strict)
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm


def check_fit(gradients: list[Gradient], variables: list[Any]) -> None:
    """Raise if a gradient's shape does not fit its variable; skip non-variables."""
    everything = zip(gradients, variables, strict=True)
    pairs = [(g, v) for g, v in everything if isinstance(v, tf.Variable)]
    for check in (check_shapes, check_rows):
        check(words.CLIP, pairs, lambda k: name_of(pairs[k][1]))


def known_zero(variables: list[tf.Variable], zero: tf.Tensor) -> Skip:
    """Return a test that looks up the flag of a variable.

    Another wrapper may update its own variables; for these it tests the gradient.
    """
    references = [variable.ref() for variable in variables]
    flags = dict(zip(references, tf.unstack(zero), strict=True))

    def is_zero(gradient: tf.Tensor | tf.IndexedSlices, variable: Any) -> tf.Tensor:
        flag = flags.get(variable.ref())
        return is_all_zero(gradient) if flag is None else flag

    return is_zero


def is_zero_as_original(
    needs_shape: bool, gradient: tf.Tensor | tf.IndexedSlices, variable: tf.Variable
) -> tf.Tensor:
    """Test a gradient with summed duplicate rows for all zeros, like the original.

    The original converts the sparse gradient of a reference variable to a dense one,
    which needs a ``dense_shape``.
    """
    is_sparse = isinstance(gradient, tf.IndexedSlices)
    if needs_shape and is_sparse and gradient.dense_shape is None:
        raise tf_host.MISSING_DENSE_SHAPE.error(name=name_of(variable))
    return is_all_zero(gradient)
