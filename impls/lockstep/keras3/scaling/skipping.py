"""The base of both wrappers with a loss scale: skip steps and update the scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.keras3.base.gradients import value_of
from lockstep.keras3.base.train_v1 import HiddenList, StateList
from lockstep.keras3.base.wrapper import Wrapper, refuse_factor
from lockstep.keras3.scaling.loss_scale import LossScale, state_variable
from lockstep.keras3.scaling.scaled_gradients import Pairs, ScaledGradients
from lockstep.messages.base.pipeline import refuse_second_scale
from lockstep.messages.scaling.loss_scaling import ScaledStepReport
from lockstep.quirks import quirks_of
from lockstep.tf.shared.scaling.scaled_step import ScaledStep
from lockstep.tf.shared.scaling.skips import SkipCounts, Skips

__all__ = ["SkippingWrapper"]


@documented
class SkippingWrapper(SkipCounts, ScaledGradients):
    """...

    Weights, slots and ``iterations`` do not change then. The scale is updated after the
    step, so a step that fails does not change it.

    Args:
        opt: the optimizer to wrap.
        scale_object: the scale that users know, a number or an object.
        scale: the same scale as a loss scale.
    """

    last_step: StepReport = ScaledStepReport(*NO_EAGER_STEP)
    report_class = ScaledStepReport

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        scale_object: Any,
        scale: LossScale,
        at_floor: str,
        floor_patience: int,
        clip_norm: float | None,
        strict: bool,
    ) -> None:
        if not quirks_of(strict).arguments_unchecked:
            refuse_second_scale(self.owner, opt)
            refuse_factor(opt, self.owner)
        super().__init__(opt)
        self.scale_object = scale_object
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict
        self.clip_norm = clip_norm
        # Not setattr: Keras would track and save it.
        vars(self)["_scale"] = scale
        for variable in scale.variables:
            self._track_variable(variable)
        if not strict:
            # Files and checkpoints find it by this name and this position.
            skips = state_variable("skipped_in_a_row", 0, "int64")
            self._track_variable(skips)
            self._track_trackable(skips, "skipped_in_a_row")
            vars(self)["_skips"] = Skips(self.owner, value_of(skips))

    def shown(self) -> dict[str, Any]:
        """Return the arguments that a repr shows."""
        shown = {"loss_scale": self.scale_object}
        return (
            shown if self.clip_norm is None else {**shown, "clip_norm": self.clip_norm}
        )

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients; strict: no."""
        return not self._quirks.loss_scale_float16

    @property
    def _hides_slots(self) -> bool:
        """Whether TensorFlow 1's interface hides slots and variables."""
        return self._quirks.loss_scale_slots

    @property
    def variables(self) -> StateList:
        """The state: scale, skips, masters if there are any, wrapped optimizer.

        Strict: ``variables()``, TensorFlow 1's method, returns an empty list.
        """
        state = super().variables
        return HiddenList(state) if self._hides_slots else state

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        return self._scale()

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        raise NotImplementedError

    def _overwriting(self, variables: Sequence[Any]) -> list[int]:
        """Return the positions of variables that are overwritten by their gradients.

        These are the scales of float8, which clipping would change.
        """
        overwrites = self._overwrite_variable_with_gradient
        return [k for k, variable in enumerate(variables) if overwrites(variable)]

    def _take_step(self, pairs: Pairs) -> None:
        """Take the step of the wrapped optimizer."""
        self.inner_optimizer.apply(*map(list, zip(*pairs, strict=True)))

    def _move_scale(self, step: ScaledStep) -> None:
        """Update the scale after a step."""
        self._scale.move(step.finite)

    def _step_or_skip(self, step: ScaledStep) -> None:
        """Take a checked step, or skip it.

        Raises:
            ScaleStalledError: a RuntimeError; eager, see ``at_floor``.
        """
        before = self._scale()
        self._forget_by_hand()

        def update() -> tf.Tensor:
            step.update(self._take_step)
            return tf.constant(True)

        skip = tf.zeros_like(step.finite)
        applied = tf.cond(step.finite, update, lambda: skip) if self.skips else update()
        # A step that fails does not change the scale.
        with tf.control_dependencies([applied]):
            self._move_scale(step)
            if tf.executing_eagerly():
                step.applied = bool(applied)
                step.scales = float(before), float(self._scale())
                inner = getattr(self.inner_optimizer, "last_step", None)
                self.last_step = step.report(inner)
            if not self.strict:
                self._skips.count(step, self._scale, self.at_floor, self.floor_patience)

    def get_slot(self, var: Any, name: str) -> keras.Variable | None:
        """Return a slot of the wrapped optimizer; strict: None."""
        return None if self._hides_slots else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist; strict: an empty list."""
        return [] if self._hides_slots else super().get_slot_names()

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
    def from_config(cls, config: Any, custom_objects: Any = None) -> Wrapper:
        """Create a wrapper from the result of ``get_config``."""
        scale = keras.saving.deserialize_keras_object(
            config["loss_scale"], custom_objects
        )
        return super().from_config({**config, "loss_scale": scale}, custom_objects)
