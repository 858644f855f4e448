"""The multitask wrapper and its clipping function, for v1-style optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import compress
from typing import Any

import numpy as np
import tensorflow as tf

from lockstep.errors import UnsupportedError
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.tf import wrapper as base
from lockstep.tf.shared import clipping as shared
from lockstep.tf.shared import gradients as tensors
from lockstep.tf.shared.gradients import Gradient, name_of
from lockstep.tf.wrapper import Optimizer, Pairs, Wrapper, become_strict


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
        strict: reproduce the original bit for bit, with its quirks: the hooks of
            ``opt`` are replaced permanently, which has no effect around another
            wrapper; the shared powers advance on every call; a multitask wrapper as
            ``opt`` raises.

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

    def __init__(self, opt: Optimizer, strict: bool = False) -> None:
        if strict:
            become_strict(self, opt)
            return
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
    left_out = [g is None or z for (g, _), z in zip(pairs, zero, strict=True)]
    skipped = tuple(name_of(v) for _, v in compress(pairs, left_out))
    absent = len(pairs) - len(present)
    counts = {"all zero": sum(zero), "absent": absent, "not finite": nonfinite}
    parts = [f"{count} {what}" for what, count in counts.items() if count]
    reason = "every gradient had a nonzero element"
    if parts:
        reason = f"of {len(pairs)} gradients {', '.join(parts)}"
    return StepReport(len(skipped) < len(pairs), reason, skipped), zero


def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Gradient, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[list[tuple[Gradient, Any]], tf.Tensor]:
    """Scale all gradients so that their global norm is at most ``clip_norm``.

    norm = sqrt(sum g^2) over the gradients that are present and not all zero;
    s = clip_norm min(1 / norm, 1 / clip_norm); each g becomes g s. A norm that is not
    finite makes every gradient NaN.

    Args:
        gradients_variables: iterable of (gradient or None, variable), dense or sparse.
        clip_norm: the largest global norm that is not clipped, > 0 and finite.
        error_if_nonfinite: raise instead of returning NaN; in a graph an assertion,
            which raises ``tf.errors.InvalidArgumentError`` when it runs.
        strict: as the original: the norm has the gradients' dtype (in float16 it
            overflows), sparse gradients and mixed dtypes are refused, ``clip_norm`` is
            not checked.

    Returns:
        The pairs with clipped gradients, and the norm: 0-d, float32 by default.

    Raises:
        OutOfRangeError: a ValueError; ``clip_norm`` is not a finite number > 0.
        MalformedPairsError: a TypeError; not pairs of a gradient and a variable.
        NoGradientsError: a ValueError; the list is empty.
        ShapeError: a ValueError; a gradient has another shape than its variable.
        NonFiniteNormError: a ValueError; see ``error_if_nonfinite``.
        UnsupportedError, DtypeError: strict and sparse, strict and mixed dtypes.

    Origin: ``tf.contrib.opt.clip_gradients_by_global_norm``, TensorFlow 1.15. The
    default mode computes the norm in float32 and accepts sparse and mixed gradients.

    Example:
        >>> w = tf.Variable([0.0, 0.0])
        >>> pairs = [(tf.constant([3.0, 4.0]), w)]
        >>> clipped, norm = clip_gradients_by_global_norm(pairs, 2.5)
        >>> float(norm), clipped[0][0].numpy().tolist()
        (5.0, [1.5, 2.0])
    """
    if strict:
        from lockstep.tf import strict as originals

        if error_if_nonfinite:
            raise UnsupportedError(
                "clip_gradients_by_global_norm: expected strict or error_if_nonfinite, "
                "got both; the original has no such option: leave one of them off."
            )
        return originals.clip_gradients_by_global_norm(gradients_variables, clip_norm)
    return shared.clip_gradients_by_global_norm(
        gradients_variables, clip_norm, error_if_nonfinite
    )
