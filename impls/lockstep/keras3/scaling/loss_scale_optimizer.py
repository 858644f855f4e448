"""The loss-scaling wrapper, for Keras 3 optimizers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import GATE_OP
from lockstep.keras3.base.gradients import Gradient, name_of
from lockstep.keras3.multitask import MultitaskOptimizerWrapper
from lockstep.keras3.scaling.loss_scale import DynamicLossScale, LossScale, get
from lockstep.keras3.scaling.scaled_gradients import Pairs, narrowed
from lockstep.keras3.scaling.skipping import SkippingWrapper
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.nouns import KERAS3
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.quirks import quirks_of
from lockstep.tf.shared.scaling.dynamic_scale import refuse_half
from lockstep.tf.shared.scaling.scaled_step import ScaledStep

__all__ = ["MixedPrecisionLossScaleOptimizer"]


@keras.saving.register_keras_serializable(package="lockstep")
@documented
class MixedPrecisionLossScaleOptimizer(SkippingWrapper):
    """...

    If every element of every gradient is finite, ``opt`` takes its step with the
    gradients, clipped if ``clip_norm`` is given. Otherwise weights, slots,
    ``iterations`` and ``global_step`` do not change. Then the scale is updated, once.

    There are two ways to scale. ``compute_gradients`` returns
    g = d(s loss)/dw (1/s), where s is the loss scale and 1/s is rounded to float32. The
    other way is ``scale_loss(loss)``, which ``fit`` calls. The gradients computed after
    it are divided once, by the first call of ``apply``, ``apply_gradients`` or
    ``compute_gradients``, in graphs and across graphs too. Gradients computed without
    either are treated as unscaled.

    With the policy ``mixed_float16``, Keras' ``compile`` wraps an optimizer in its own
    loss scaling. It does not wrap this class, which is a
    ``keras.optimizers.LossScaleOptimizer``, so make it the outermost wrapper. If
    another wrapper is outside, pass ``compile(..., auto_scale_loss=False)``. With
    Keras' scaling this one has no effect and warns.

    Args:
        opt: any Keras optimizer, or a wrapper.

    Raises:
        ...
        NotScalableError: a ValueError and TypeError; ``opt`` is no Keras optimizer.

    State: the scale and its counts are in ``variables`` and in ``.keras`` files. If
    ``opt`` accumulates gradients over steps, each of these steps is checked separately,
    and a skipped one does not count.

    Example:
        >>> w = keras.Variable([1.0, 2.0])
        >>> sgd = keras.optimizers.SGD(0.5)
        >>> opt = MixedPrecisionLossScaleOptimizer(sgd, 8.0)
        >>> _ = opt.minimize(lambda: keras.ops.sum(w * w), var_list=[w])
        >>> w.numpy().tolist(), opt.last_step.applied
        ([0.0, 0.0], True)
    """

    owner = words.WRAPPER
    scale_of = staticmethod(get)

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        loss_scale: float | str | LossScale,
        at_floor: str = "warn",
        floor_patience: int = words.PATIENCE,
        strict: bool = False,
        *,
        clip_norm: float | None = None,
    ) -> None:
        quirks = quirks_of(strict)
        is_multitask = isinstance(opt, MultitaskOptimizerWrapper)
        refused = quirks.multitask_nesting and is_multitask
        if refused or not isinstance(opt, keras.optimizers.Optimizer):
            raise not_an_optimizer(words.WRAPPER, opt, KERAS3)
        scale = self.scale_of(loss_scale, strict)
        if scale is None:
            raise refusals.MISSING_LOSS_SCALE.error()
        words.check_at_floor(at_floor, floor_patience)
        words.check_clip_norm(clip_norm, quirks.arguments_unchecked)
        super().__init__(opt, scale, scale, at_floor, floor_patience, clip_norm, strict)

    def check_loss(self, dtype: tf.DType) -> None:
        """Strict: raise for a loss in half precision."""
        if self._quirks.loss_scale_float16:
            refuse_half("a loss", dtype)

    @tf.autograph.experimental.do_not_convert
    @documented
    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> Pairs:
        """Differentiate the scaled loss and unscale: (gradient or None, variable).

        Args:
            loss: a callable without arguments that returns a tensor.
            var_list: the variables; None: those that the optimizer was built with.
            grad_loss: the upstream gradient of the loss, unscaled.

        Raises:
            LossNotCallableError: a RuntimeError; ``loss`` cannot be called.
            DtypeError: a TypeError; strict, a loss or a variable in float16.
        """
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        pairs = self.differentiate(loss, var_list, *options, grad_loss)
        for gradient, variable in pairs if self._quirks.loss_scale_float16 else []:
            if gradient is not None:
                refuse_half(repr(name_of(variable)), gradient.dtype)
        return self.unscaled(pairs)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Unscale; step if all gradients are finite; update the scale."""
        pairs = self.unscaled(list(zip(gradients, variables, strict=True)))
        values = [self.values_of(g) for g, _ in pairs if g is not None]
        names = [name_of(variable) for variable in variables]
        step = ScaledStep(pairs, names, values, self._overwriting(variables))
        step.look(self.clip_norm)
        self._step_or_skip(step)

    def _take_step(self, pairs: Pairs) -> None:
        """Take the step of the wrapped optimizer."""
        super()._take_step(narrowed(pairs))

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        is_dynamic = isinstance(self.scale_object, DynamicLossScale)
        return is_dynamic or not self._quirks.loss_scale_fixed
