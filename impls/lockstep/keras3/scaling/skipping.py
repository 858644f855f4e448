"""What both wrappers with a loss scale do: scale, skip a step, move the scale, tell."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import keras
import tensorflow as tf

from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.keras3.base.divisor import Divisor
from lockstep.keras3.base.gradients import Gradient, as_gradient, name_of, value_of
from lockstep.keras3.base.train_v1 import HiddenList, StateList, TrainV1
from lockstep.keras3.base.wrapper import Wrapper
from lockstep.keras3.scaling.loss_scale import state_variable
from lockstep.keras3.scaling.scaled_loss import scaled, unscaled
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.base.pipeline import refuse_second_scale
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.messages.scaling.loss_scale import check_gradient_dtype
from lockstep.messages.scaling.loss_scaling import ScaledStepReport
from lockstep.quirks import quirks_of
from lockstep.tf.shared.masters.casts import widen
from lockstep.tf.shared.scaling.skip_counts import SkipCounts
from lockstep.tf.shared.scaling.stall import Watch
from lockstep.tf.shared.scaling.verdict import Verdict

__all__ = ["Pairs", "SkippingWrapper"]

Pairs = list[tuple[Gradient, Any]]


class ScalesAlready(keras.optimizers.LossScaleOptimizer):
    """What ``compile`` asks for before it wraps an optimizer in a scaling of Keras."""

    def __init__(self, learning_rate: float, name: str) -> None:
        keras.optimizers.Optimizer.__init__(self, learning_rate, name=name)


class SkippingWrapper(Wrapper, ScalesAlready):
    """A wrapper that leaves a step out if what it finds in the gradients is not finite.

    Then weights, slots and ``iterations`` stay as they are. The scale moves after the
    update: a step that fails leaves it where it was. What ``scale_loss`` has multiplied
    by is kept, and whatever reads the gradients first divides by it, once.

    Args:
        opt: the optimizer to wrap.
        scale: the scale, a number or an object; ``state``: its variables.
        at_floor: what is done about a stall; ``clip_norm``: the largest global norm;
            both are checked.
        floor_patience: the steps skipped in a row that are a stall.
        strict: nothing is counted, and no slot is seen.
    """

    owner: str
    """The name in sentences."""

    last_step: StepReport = ScaledStepReport(*NO_EAGER_STEP)
    report_class = ScaledStepReport

    def __init__(
        self,
        opt: keras.optimizers.Optimizer,
        scale: Any,
        state: Iterable[keras.Variable],
        at_floor: str,
        floor_patience: int,
        clip_norm: float | None,
        strict: bool,
    ) -> None:
        if not quirks_of(strict).arguments_unchecked:
            refuse_second_scale(self.owner, opt)
        super().__init__(opt)
        self.scale_object = scale
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.strict = strict
        self.clip_norm = clip_norm
        for variable in state:
            self._track_variable(variable)
        if not strict:
            # Found in files and checkpoints by this name and this place.
            skips = state_variable("skipped_in_a_row", 0, "int64")
            self._track_variable(skips)
            self._track_trackable(skips, "skipped_in_a_row")
            vars(self)["_skips"] = skips
        # Not setattr: Keras would track and save it. By thread, as replicas are: while
        # a loss is differentiated, whether it has been scaled; and where gradients were
        # unscaled by hand: a graph, or None.
        vars(self).update(_divisor=Divisor(), _has_scaled={}, _by_hand={})
        vars(self)["_steps_in_functions"] = False

    def shown(self) -> dict[str, Any]:
        """Return the arguments that a repr shows."""
        shown = {"loss_scale": self.scale_object}
        return (
            shown if self.clip_norm is None else {**shown, "clip_norm": self.clip_norm}
        )

    @property
    def _counts(self) -> SkipCounts:
        return SkipCounts(value_of(self._skips))

    @property
    def skipped_in_a_row(self) -> tf.Tensor:
        """The steps skipped since the last one that was not: int64, 0-d."""
        return self._counts.read_value()

    @property
    def skipped_steps(self) -> tf.Tensor:
        """All steps that were skipped: int64, 0-d."""
        return self._counts.total()

    @property
    def takes_wide(self) -> bool:
        """Whether float32 gradients fit half-precision variables; not under strict."""
        return not self._quirks.loss_scale_float16

    @property
    def _hides_slots(self) -> bool:
        """Whether TensorFlow 1's interface shows neither slots nor variables."""
        return self._quirks.loss_scale_slots

    @property
    def variables(self) -> StateList:
        """The state: scale, skips, masters if there are any, wrapped optimizer.

        Strict: ``variables()``, the method of TensorFlow 1, returns nothing.
        """
        state = super().variables
        return HiddenList(state) if self._hides_slots else state

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        raise NotImplementedError

    @property
    def skips(self) -> bool:
        """Whether steps that are not finite are left out."""
        raise NotImplementedError

    def move_scale(self, verdict: Verdict) -> None:
        """Let the scale take note of a step."""
        raise NotImplementedError

    def scale_is_at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        raise NotImplementedError

    def check_loss(self, dtype: tf.DType) -> None:
        """Raise for a loss of a dtype that is refused; by default none is."""

    def known_as(self, variable: Any) -> Any:
        """Return the variable that the user knows in place of ``variable``."""
        return variable

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> tf.Tensor:
        """Return loss times scale; a loss in half precision becomes float32.

        The gradients are divided by the scale once: see the class.

        Raises:
            DtypeError: a TypeError; strict, a loss in float16.
            LossNotCallableError: a TypeError; None or a string.
        """
        thread = threading.get_ident()
        if self._has_scaled.get(thread):
            # The loss given to compute_gradients has called this by itself.
            return loss
        # Read once: the loss and its gradients must see one scale.
        if loss is None or isinstance(loss, str):
            raise base_refusals.NO_LOSS.error(owner=self.owner, got=loss)
        scale, loss = self.loss_scale, tf.convert_to_tensor(loss)
        self.check_loss(loss.dtype)
        made = scaled(self.inner_optimizer.scale_loss(loss), scale)
        self._divisor.put(scale, self._iterations.value)
        self._by_hand.pop(thread, None)
        if thread in self._has_scaled:
            self._has_scaled[thread] = True
        return made

    @tf.autograph.experimental.do_not_convert
    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """Return the gradients of a scaled loss divided by the scale: g x fl32(1 / s).

        ``apply_gradients`` takes them as they are. Half precision comes back as
        float32; None stays None, and rows stay rows.

        Args:
            gradients: what a tape returned for a list of variables; unless
                ``scale_loss`` scaled the loss they keep their values.

        Raises:
            UnscaledTwiceError: a RuntimeError; a second time before the step.
            MalformedPairsError, DtypeError: TypeErrors; not a list of real gradients.
        """
        listed = words.listed_gradients(gradients, self.owner, tf.is_tensor(gradients))
        given = [as_gradient(g, f"gradient {k}", self.owner) for k, g in listed]
        for gradient in given:
            if gradient is not None:
                check_gradient_dtype(gradient.dtype.name)
        graph, thread = tf.compat.v1.get_default_graph(), threading.get_ident()
        here = None if tf.executing_eagerly() else weakref.ref(graph)
        unseen_step = here is None and self._steps_in_functions
        if self._by_hand.get(thread, False) == here and not unseen_step:
            owner = f"{self.owner}.unscale_gradients"
            raise refusals.UNSCALED_TWICE.error(owner=owner, remedy=words.SCALE_AGAIN)
        wide = [g if g is None or g.dtype.size > 2 else widen(g) for g in given]
        found = unscaled(wide, self._divisor.take(self._iterations.value))
        self._by_hand[thread] = here
        return found

    def differentiate(self, *arguments: Any) -> Pairs:
        """Differentiate the scaled loss: the pairs are still to be divided.

        Arguments and errors are those of
        :meth:`~lockstep.keras3.base.train_v1.TrainV1.compute_gradients`.
        """
        self._has_scaled[threading.get_ident()] = False
        try:
            return TrainV1.compute_gradients(self, *arguments)
        finally:
            del self._has_scaled[threading.get_ident()]

    def unscaled(self, pairs: Pairs) -> Pairs:
        """Return the pairs, divided by what they are still to be divided by.

        What overwrites its variable (the scales of float8) is no gradient of the loss.
        """
        divisor = self._divisor.take(self._iterations.value)
        kept = [self._overwrite_variable_with_gradient(v) for _, v in pairs]
        given = [None if k else g for (g, _), k in zip(pairs, kept, strict=True)]
        made = zip(unscaled(given, divisor), pairs, kept, strict=True)
        return [(g if keep else m, v) for m, (g, v), keep in made]

    def step_or_skip(
        self, pairs: Pairs, verdict: Verdict, update: Callable[[Pairs], None]
    ) -> None:
        """Let ``update`` run with the clipped pairs unless the step is to be skipped.

        Raises:
            ScaleStalledError: a RuntimeError; eager, see ``at_floor``.
        """
        before = self.loss_scale
        if None in self._by_hand.values() and not tf.executing_eagerly():
            # Later calls of a function do not come by here.
            vars(self)["_steps_in_functions"] = True
        self._by_hand.clear()

        def step() -> tf.Tensor:
            update(verdict.clipped(pairs))
            return tf.constant(True)

        skip = tf.zeros_like(verdict.finite)
        applied = tf.cond(verdict.finite, step, lambda: skip) if self.skips else step()
        # A step that fails leaves the scale where it was.
        with tf.control_dependencies([applied]):
            self.move_scale(verdict)
            if tf.executing_eagerly():
                variables = [variable for _, variable in pairs]
                self._report(verdict, variables, bool(applied), float(before))
            if not self.strict:
                self._watch(verdict)

    def _report(
        self, verdict: Verdict, variables: list[Any], applied: bool, before: float
    ) -> None:
        inner = getattr(self.inner_optimizer, "last_step", None) if applied else None
        finite = bool(verdict.finite)
        self.last_step = words.report(
            inner,
            [name_of(self.known_as(variable)) for variable in variables],
            [] if finite else verdict.nonfinite(),
            (before, float(self.loss_scale)),
            applied,
            *verdict.norm_and_factor(),
        )

    def _watch(self, verdict: Verdict) -> None:
        """Count the steps skipped in a row; somebody is told of a stall."""
        watch = Watch(
            self.owner,
            self._counts,
            lambda: self.loss_scale,
            self.scale_is_at_floor,
            self.floor_patience,
            self.at_floor,
        )
        if tf.executing_eagerly():
            watch.count_eagerly(verdict)
        else:
            watch.count_in_graph(verdict)

    def get_slot(self, var: Any, name: str) -> keras.Variable | None:
        """Return a slot of the wrapped optimizer; strict: None."""
        return None if self._hides_slots else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist; strict: nothing."""
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
        """Make a wrapper from what ``get_config`` returned."""
        scale = keras.saving.deserialize_keras_object(
            config["loss_scale"], custom_objects
        )
        return super().from_config({**config, "loss_scale": scale}, custom_objects)
