"""The loss-scaling wrapper, for optimizers of Keras 3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from lockstep.interface import GATE_OP, StepReport
from lockstep.keras3.divisor import Divisor
from lockstep.keras3.gradients import Gradient, name_of, value_of
from lockstep.keras3.loss_scale import DynamicLossScale, LossScale, get, state_variable
from lockstep.keras3.multitask import MultitaskOptimizerWrapper
from lockstep.keras3.scaled_loss import refuse_half, scaled, unscaled
from lockstep.keras3.train_v1 import TrainV1
from lockstep.keras3.wrapper import Wrapper
from lockstep.spec import loss_scaling as words
from lockstep.tf.core.stall import Watch
from lockstep.tf.core.verdict import Verdict, judge

__all__ = ["MixedPrecisionLossScaleOptimizer"]


class ScalesAlready(keras.optimizers.LossScaleOptimizer):
    """What ``compile`` asks for before it wraps an optimizer in a scaling of Keras."""

    def __init__(self, learning_rate: float, name: str) -> None:
        keras.optimizers.Optimizer.__init__(self, learning_rate, name=name)


@keras.saving.register_keras_serializable(package="lockstep")
class MixedPrecisionLossScaleOptimizer(Wrapper, ScalesAlready):
    """Scale the loss, unscale the gradients, skip a step that is not finite.

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
    keeps Keras' scaling away, which would leave this one without effect.

    Args:
        opt: any optimizer of Keras, a wrapper included.
        loss_scale: a number >= 1, ``dynamic``, or a loss scale.
        at_floor: what to do once ``floor_patience`` steps in a row were skipped and the
            scale cannot sink any more: ``warn`` (in a graph, so in ``fit``: print to
            stderr), once; ``raise`` (in a graph an assertion, which raises
            ``tf.errors.InvalidArgumentError`` when it runs); ``ignore``. What XLA
            compiles only counts.
        floor_patience: steps.
        strict: as the original: non-finite gradients are applied at a fixed scale,
            float16 is refused, slots are hidden, no stall is noticed, ``clip_norm`` is
            refused.
        clip_norm: > 0; n the float32 global norm of the unscaled gradients, each g
            becomes g clip_norm min(1 / n, 1 / clip_norm) before ``opt`` has it. n that
            is not finite is an overflow, and skipped. None: no clipping, no norm.

    Attributes:
        inner_optimizer: ``opt``.
        scale_object: the loss scale as an object.
        last_step: what the last eager step did, a
            :class:`~lockstep.spec.loss_scaling.ScaledStepReport`; None before it, and
            inside of a ``tf.function``, where ``fit`` takes its steps.
        skipped_in_a_row: the steps skipped in a row, a variable; not under ``strict``.

    Raises:
        NotScalableError: a ValueError and TypeError; ``opt`` is no optimizer of Keras.
        MissingLossScaleError: a TypeError and ValueError; ``loss_scale`` is None.
        UnknownNameError, OutOfRangeError: a ValueError; see the arguments.

    State: the scale and its counts are among ``variables`` and in ``.keras`` files.
    Where ``opt`` accumulates gradients over steps, each of these steps is judged by
    itself, and one that is skipped does not count.

    Origin: ``tf.train.experimental.MixedPrecisionLossScaleOptimizer``, TensorFlow 1.15.
    By default we differ in what ``strict`` lists.

    Example:
        >>> w = keras.Variable([1.0, 2.0])
        >>> sgd = keras.optimizers.SGD(0.5)
        >>> opt = MixedPrecisionLossScaleOptimizer(sgd, 8.0)
        >>> _ = opt.minimize(lambda: keras.ops.sum(w * w), var_list=[w])
        >>> w.numpy().tolist(), opt.last_step.applied
        ([0.0, 0.0], True)
    """

    _has_scaled: bool | None = None

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
        refused = strict and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, keras.optimizers.Optimizer):
            raise words.not_an_optimizer(opt, "keras.optimizers.Optimizer")
        scale = get(loss_scale, strict)
        if scale is None:
            raise words.missing_loss_scale()
        words.check_at_floor(at_floor, floor_patience)
        words.check_clip_norm(clip_norm, strict)
        super().__init__(opt)
        self.scale_object = scale
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict
        self.clip_norm = clip_norm
        self.last_step: StepReport | None = None
        for variable in scale.variables:
            self._track_variable(variable)
        if not strict:
            self.skipped_in_a_row = state_variable("skipped_in_a_row", 0, "int64")
        # Not setattr: Keras would track and save it.
        vars(self)["_divisor"] = Divisor()

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return self.scale_object()

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> tf.Tensor:
        """Return loss times scale; a loss in half precision becomes float32.

        The gradients are divided by the scale once: see the class.

        Raises:
            DtypeError: a TypeError; strict, a loss in float16.
        """
        if self._has_scaled:
            # The loss given to compute_gradients has called this by itself.
            return loss
        # Read once: the loss and its gradients must see one scale.
        scale = self.loss_scale
        made = scaled(self.inner_optimizer.scale_loss(loss), scale, self.strict)
        self._divisor.put(scale, self._iterations.value)
        if self._has_scaled is False:
            self._has_scaled = True
        return made

    @tf.autograph.experimental.do_not_convert
    def compute_gradients(
        self,
        loss: Any,
        var_list: Iterable[Any] | None = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Gradient, Any]]:
        """Differentiate the scaled loss and unscale: (gradient or None, variable).

        Args:
            loss: a callable without arguments that returns a tensor.
            var_list: the variables; None means those that the optimizer is built with.
            gate_gradients: accepted, no effect.
            aggregation_method: accepted, no effect.
            colocate_gradients_with_ops: accepted, no effect.
            grad_loss: the upstream gradient of the loss, unscaled.

        Raises:
            LossNotCallableError: a RuntimeError; ``loss`` cannot be called.
            DtypeError: a TypeError; strict, a loss or a variable in float16.
        """
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        self._has_scaled = False
        try:
            pairs = TrainV1.compute_gradients(self, loss, var_list, *options, grad_loss)
        finally:
            self._has_scaled = None
        for gradient, variable in pairs if self.strict else []:
            if gradient is not None:
                refuse_half(repr(name_of(variable)), gradient.dtype)
        gradients = self._unscaled([gradient for gradient, _ in pairs])
        return [(g, v) for g, (_, v) in zip(gradients, pairs, strict=True)]

    def _unscaled(self, gradients: list[Gradient]) -> list[Gradient]:
        """Return the gradients, divided by what they are still to be divided by."""
        return unscaled(gradients, self._divisor.take(self._iterations.value))

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Unscale; let the wrapped optimizer step if all is finite; move the scale."""
        before, pairs = self.loss_scale, self._pairs(gradients, variables)
        verdict = self.judge(pairs)

        def step() -> tf.Tensor:
            clipped = verdict.clipped(pairs)
            self.inner_optimizer.apply(*map(list, zip(*clipped, strict=True)))
            return tf.constant(True)

        skip = tf.zeros_like(verdict.finite)
        applied = tf.cond(verdict.finite, step, lambda: skip) if self.skips else step()
        # A step that fails leaves the scale where it was.
        with tf.control_dependencies([applied]):
            self.scale_object.move(verdict.finite)
            self.last_step = None
            if tf.executing_eagerly():
                self._report(verdict, variables, bool(applied), float(before))
            if not self.strict:
                self._watch(verdict)

    def _pairs(
        self, gradients: list[Gradient], variables: list[Any]
    ) -> list[tuple[Gradient, Any]]:
        """Return unscaled gradients with their variables.

        What overwrites its variable (the scales of float8) is no gradient of the loss.
        """
        kept = [self._overwrite_variable_with_gradient(v) for v in variables]
        pairs = list(zip(gradients, kept, strict=True))
        made = self._unscaled([None if keep else g for g, keep in pairs])
        found = [g if keep else m for (g, keep), m in zip(pairs, made, strict=True)]
        return list(zip(found, variables, strict=True))

    @property
    def skips(self) -> bool:
        """Whether steps that are not finite are left out.

        # Quirk: docs/differences.md#loss-scale-fixed. Strict: at a dynamic scale only.
        """
        return not self.strict or isinstance(self.scale_object, DynamicLossScale)

    def judge(self, pairs: list[tuple[Gradient, Any]]) -> Verdict:
        """Look at the gradients of a step."""
        names = [name_of(variable) for g, variable in pairs if g is not None]
        # Duplicate rows are summed already.
        present = [getattr(g, "values", g) for g, _ in pairs if g is not None]
        return judge(present, names, self.clip_norm)

    def _report(
        self, verdict: Verdict, variables: list[Any], applied: bool, before: float
    ) -> None:
        inner = getattr(self.inner_optimizer, "last_step", None) if applied else None
        finite = bool(verdict.finite)
        self.last_step = words.report(
            inner,
            [name_of(variable) for variable in variables],
            [] if finite else verdict.nonfinite(),
            (before, float(self.loss_scale)),
            applied,
            *verdict.norm_and_factor(),
        )

    def _watch(self, verdict: Verdict) -> None:
        """Count the steps skipped in a row; somebody is told of a stall."""
        count = value_of(self.skipped_in_a_row)
        watch = Watch(
            words.WRAPPER,
            count,
            self.scale_object,
            self.scale_object.at_floor,
            self.floor_patience,
            self.at_floor,
        )
        if tf.executing_eagerly():
            watch.count_eagerly(verdict)
        else:
            watch.count_in_graph(verdict)

    def get_slot(self, var: Any, name: str) -> keras.Variable | None:
        """Return a slot of the wrapped optimizer.

        # Quirk: docs/differences.md#loss-scale-slots. Strict: None.
        """
        return None if self.strict else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist; strict: nothing."""
        return [] if self.strict else super().get_slot_names()

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        scale = keras.saving.serialize_keras_object(self.scale_object)
        return {
            **super().get_config(),
            "loss_scale": scale,
            "at_floor": self.at_floor,
            "floor_patience": self.floor_patience,
            "strict": self.strict,
            "clip_norm": self.clip_norm,
        }

    @classmethod
    def from_config(
        cls, config: Any, custom_objects: Any = None
    ) -> MixedPrecisionLossScaleOptimizer:
        """Make a wrapper from what ``get_config`` returned."""
        scale = keras.saving.deserialize_keras_object(
            config["loss_scale"], custom_objects
        )
        return super().from_config({**config, "loss_scale": scale}, custom_objects)
