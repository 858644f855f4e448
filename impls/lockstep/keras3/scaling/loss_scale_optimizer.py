"""The loss-scaling wrapper, for optimizers of Keras 3."""

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

    If every element of every gradient is finite, they are clipped as ``clip_norm`` says
    and ``opt`` takes its step; otherwise weights, slots, ``iterations`` and
    ``global_step`` stay as they are. Then the scale moves, once.

    There are two ways to scale. ``compute_gradients`` returns
    g = d(s loss)/dw (1/s), s the loss scale and 1/s rounded to float32. Or
    ``scale_loss(loss)``, which ``fit`` calls: the gradients made after it are divided
    once, by whatever comes first of ``apply``, ``apply_gradients`` and
    ``compute_gradients``, in graphs and between them too. Gradients that were made
    without either are taken as unscaled.

    Under the policy ``mixed_float16`` Keras' ``compile`` puts a scaling of its own
    around an optimizer. Around this one it does not, since it is a
    ``keras.optimizers.LossScaleOptimizer`` by class; so let it be the outermost
    wrapper. Where another one is around it, ``compile(..., auto_scale_loss=False)``
    keeps Keras' scaling away, which would leave this one without effect and warns.

    Args:
        opt: any optimizer of Keras, a wrapper included.

    Raises:
        ...
        NotScalableError: a ValueError and TypeError; ``opt`` is no optimizer of Keras.

    State: the scale and its counts are among ``variables`` and in ``.keras`` files.
    Where ``opt`` accumulates gradients over steps, each of these steps is judged by
    itself, and one that is skipped does not count.

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
        """Raise under ``strict`` for a loss in half precision."""
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
            var_list: the variables; None means those that the optimizer is built with.
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
        """Unscale; let the wrapped optimizer step if all is finite; move the scale."""
        pairs = self.unscaled(list(zip(gradients, variables, strict=True)))
        values = [self.values_of(g) for g, _ in pairs if g is not None]
        step = ScaledStep(pairs, [name_of(variable) for variable in variables], values)
        step.look(self.clip_norm)
        self._step_or_skip(step)

    def _take_step(self, pairs: Pairs) -> None:
        """Let the wrapped optimizer take its step."""
        super()._take_step(narrowed(pairs))

    @property
    def skips(self) -> bool:
        """Whether steps that are not finite are left out."""
        is_dynamic = isinstance(self.scale_object, DynamicLossScale)
        return is_dynamic or not self._quirks.loss_scale_fixed
