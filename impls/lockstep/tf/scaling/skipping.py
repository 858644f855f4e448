"""What both wrappers with a loss scale do: skip a step, move the scale, tell of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from lockstep.interface import NO_EAGER_STEP, StepReport
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.base.pipeline import refuse_second_scale
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling.loss_scale import check_gradient_dtype
from lockstep.messages.scaling.loss_scaling import ScaledStepReport
from lockstep.quirks import quirks_of
from lockstep.tf.base.by_hand import ByHand
from lockstep.tf.base.hooks import require_resources
from lockstep.tf.base.pairs import Gradient, Pairs, as_gradient, name_of
from lockstep.tf.base.wrapper import Optimizer, Wrapper, as_train_op
from lockstep.tf.scaling.loss_scale import state_variable
from lockstep.tf.scaling.scaled_loss import scaled, unscaled, widened
from lockstep.tf.shared.scaling.skip_counts import SkipCounts
from lockstep.tf.shared.scaling.stall import Watch
from lockstep.tf.shared.scaling.verdict import Verdict

__all__ = ["SkippingWrapper", "Update"]

Update = Callable[[Pairs], tf.Operation | None]


class SkippingWrapper(Wrapper):
    """A wrapper that leaves a step out if what it finds in the gradients is not finite.

    Then weights, slots, shared powers and ``global_step`` stay as they are. The scale
    moves after the update: a step that fails leaves it where it was.

    Args:
        inner_optimizer: the optimizer to wrap.
        name: name of the wrapper.
        at_floor: what is done about a stall; ``clip_norm``: the largest global norm;
            both are checked.
        floor_patience: the steps skipped in a row that are a stall.
        strict: nothing is counted, and no slot is seen.
    """

    scale_object: Any

    def __init__(
        self,
        inner_optimizer: Optimizer,
        name: str | None,
        at_floor: str,
        floor_patience: int,
        clip_norm: float | None,
        strict: bool,
    ) -> None:
        if not quirks_of(strict).arguments_unchecked:
            refuse_second_scale(self.owner, inner_optimizer)
        locking = getattr(inner_optimizer, "_use_locking", False)
        super().__init__(inner_optimizer, name, locking)
        if isinstance(self.scale_object, tf.Module):
            self._track_trackable(self.scale_object, "loss_scale")
        self.at_floor = at_floor
        self.floor_patience = floor_patience
        self.clip_norm = clip_norm
        self.strict = strict
        self.last_step: StepReport = ScaledStepReport(*NO_EAGER_STEP)
        self._by_hand = ByHand()
        if not strict:
            with tf.init_scope():
                skips = state_variable("skipped_in_a_row", 0, tf.int64)
            self._track_trackable(skips, "skipped_in_a_row")
            self._skips = SkipCounts(skips)

    @property
    def skipped_in_a_row(self) -> tf.Tensor:
        """The steps skipped since the last one that was not: int64, 0-d."""
        return self._skips.read_value()

    @property
    def skipped_steps(self) -> tf.Tensor:
        """All steps that were skipped: int64, 0-d."""
        return self._skips.total()

    @property
    def loss_scale(self) -> tf.Tensor:
        """The scale of the next step: float32, 0-d."""
        raise NotImplementedError

    @property
    def takes_wide(self) -> bool:
        """Whether float32 gradients fit half-precision variables; not under strict."""
        return not self._quirks.loss_scale_float16

    @property
    def _hides_slots(self) -> bool:
        """Whether neither slots nor variables are shown."""
        return self._quirks.loss_scale_slots

    @property
    def _counters(self) -> list[tf.Variable]:
        """The variable of the skip count; strict counts nothing."""
        return [] if self.strict else [self._skips.variable]

    @property
    def skips(self) -> bool:
        """Whether steps that are not finite are left out."""
        raise NotImplementedError

    def policies(self) -> list[Any]:
        """Return the loss scale, for a repr."""
        return [self.scale_object]

    @property
    def factor(self) -> float | tf.Tensor:
        """What a loss is multiplied by now."""
        raise NotImplementedError

    def check_loss(self, dtype: tf.DType) -> None:
        """Raise for a loss of a dtype that cannot be scaled."""
        raise NotImplementedError

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> Any:
        """Return ``loss`` times the loss scale, for a tape to differentiate.

        Its gradients are divided by the scale once: by :meth:`unscale_gradients`, or by
        ``apply_gradients`` if that comes first.

        Args:
            loss: a tensor, or a callable without arguments, which becomes another one.

        Raises:
            LossNotCallableError: a TypeError; None or a string.
        """
        if loss is None or isinstance(loss, str):
            raise base_refusals.NO_LOSS.error(owner=self.owner, got=loss)
        found = scaled(loss, self.factor, self.check_loss)
        self._by_hand.note(is_unscaled=False)
        return found

    @tf.autograph.experimental.do_not_convert
    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """Return the gradients of a scaled loss divided by the scale: g x fl32(1 / s).

        ``apply_gradients`` takes them as they are. Half precision comes back as
        float32; None stays None, and rows stay rows.

        Args:
            gradients: what a tape returned for a list of variables. They are divided
                also if ``scale_loss`` was not called.

        Raises:
            UnscaledTwiceError: a RuntimeError; a second time before the step.
            MalformedPairsError, DtypeError: TypeErrors; not a list of real gradients.
        """
        listed = words.listed_gradients(gradients, self.owner, tf.is_tensor(gradients))
        self._by_hand.refuse_second(self.owner)
        found = [as_gradient(g, f"gradient {k}", self.owner) for k, g in listed]
        for gradient in found:
            if gradient is not None:
                check_gradient_dtype(gradient.dtype.name)
        pairs = [(widened(gradient), None) for gradient in found]
        pairs = unscaled(pairs, self.factor, self._quirks)
        self._by_hand.note(is_unscaled=True)
        return [gradient for gradient, _ in pairs]

    def unscaled_once(self, pairs: Pairs) -> Pairs:
        """Return gradients as the step takes them; only ``scale_loss`` scaled them."""
        if self._by_hand.take(self.owner):
            return pairs
        return unscaled([(widened(g), v) for g, v in pairs], self.factor, self._quirks)

    def judge(self, pairs: Pairs) -> Verdict:
        """Look at the gradients of a step."""
        raise NotImplementedError

    def move_scale(self, verdict: Verdict) -> tf.Operation | None:
        """Let the scale take note of a step; return the operation."""
        raise NotImplementedError

    def scale_is_at_floor(self) -> tf.Tensor:
        """Whether no overflow can make the scale smaller: bool, 0-d."""
        raise NotImplementedError

    def known_as(self, variable: tf.Variable) -> tf.Variable:
        """Return the variable that the user knows in place of ``variable``."""
        return variable

    @property
    def watch(self) -> Watch:
        """Who counts the skipped steps; not under strict."""
        return Watch(
            self.owner,
            self._skips,
            lambda: self.loss_scale,
            self.scale_is_at_floor,
            self.floor_patience,
            self.at_floor,
        )

    def apply_or_skip(
        self,
        pairs: Pairs,
        update: Update,
        global_step: tf.Variable | None,
        name: str | None,
    ) -> tf.Operation | None:
        """Let ``update`` run with the clipped pairs unless the step is to be skipped.

        Raises:
            ScaleStalledError: a RuntimeError; eager, see ``at_floor``.
            UnsupportedError: reference variables where control flow v2 is on.
        """
        if tf.executing_eagerly():
            return self._apply_eagerly(pairs, update)
        self.last_step = ScaledStepReport(*NO_EAGER_STEP)
        if not self.skips:
            clips = self.clip_norm is not None
            clipped = self.judge(pairs).clipped(pairs) if clips else pairs
            return as_train_op(lambda: update(clipped))
        touched = [v for g, v in pairs if g is not None]
        known = [self.known_as(variable) for variable in touched]
        step = [] if global_step is None else [global_step]
        require_resources([*touched, *known, *step])
        return as_train_op(lambda: self._apply_in_graph(pairs, update, name))

    def _apply_in_graph(self, pairs: Pairs, update: Update, name: str | None) -> Any:
        with self._old_scope() as moving:
            verdict = self.judge(pairs)

        def run() -> tf.Operation | None:
            with tf.control_dependencies([update(verdict.clipped(pairs))]):
                return tf.no_op()

        with self._old_scope() as holding:
            if not self._makes_slots_late():
                self.create_slots([v for g, v in pairs if g is not None])
        done = tf.cond(verdict.finite, run, tf.no_op, name=holding)
        with tf.control_dependencies([done]), self._old_scope(moving):
            moved = self.move_scale(verdict)
        with tf.control_dependencies([moved]):
            told = tf.no_op() if self.strict else self.watch.count_in_graph(verdict)
        return tf.group(done, moved, told, name=name or self.get_name())

    def _old_scope(
        self, name: str | None = "cond"
    ) -> contextlib.AbstractContextManager[Any]:
        """Name what is made as the original's next condition did, or go back to one.

        It had two: one moved the scale, the other held the update. Checkpoints of old
        code have ``cond_1/beta1_power`` for the power of an Adam, and
        ``cond_3/beta1_power`` for that of a second one.
        """
        if not self.strict:
            return contextlib.nullcontext()
        return tf.compat.v1.name_scope(name)

    def _makes_slots_late(self) -> bool:
        """Whether the update makes its slots itself, in the original's condition.

        Only there do wrappers inside give them the names that they had. Branches of
        control flow v2 are functions, and name what they make otherwise.
        """
        return self.strict and not tf.compat.v1.control_flow_v2_enabled()

    def _apply_eagerly(self, pairs: Pairs, update: Update) -> tf.Operation | None:
        before, verdict = float(self.loss_scale), self.judge(pairs)
        finite = bool(verdict.finite)
        applied = finite or not self.skips
        if applied:
            done = update(verdict.clipped(pairs))
        else:
            # As in a graph: what a first step makes exists after a skipped one too.
            done = self.create_slots([v for g, v in pairs if g is not None])
        self.move_scale(verdict)
        self.last_step = words.report(
            getattr(self.inner_optimizer, "last_step", None) if applied else None,
            [name_of(self.known_as(variable)) for _, variable in pairs],
            [] if finite else verdict.nonfinite(),
            (before, float(self.loss_scale)),
            applied,
            *verdict.norm_and_factor(),
        )
        if not self.strict:
            self.watch.count_eagerly(verdict)
        return done

    def get_slot(self, var: Any, name: str) -> tf.Variable | None:
        """Return a slot of the wrapped optimizer; strict: None."""
        return None if self._hides_slots else super().get_slot(var, name)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots that exist; strict: nothing."""
        return [] if self._hides_slots else super().get_slot_names()
