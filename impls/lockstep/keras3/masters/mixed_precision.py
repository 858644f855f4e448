"""Training of half-precision variables through float32 masters (Keras 3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import keras
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.interface import GATE_OP
from lockstep.keras3.base.gradients import (
    Gradient,
    key_of,
    name_of,
    value_of,
    without_duplicates,
)
from lockstep.keras3.base.replicas import once, replica_count
from lockstep.keras3.base.slots import Slots, refuse_several
from lockstep.keras3.base.train_v1 import require_all
from lockstep.keras3.base.wrapper import Wrapper
from lockstep.keras3.masters.copies import copy_back, copy_changes, make_master
from lockstep.keras3.masters.regularizer import regularized
from lockstep.keras3.scaling.loss_scale import DynamicLossScale, LossScale
from lockstep.keras3.scaling.loss_scaler import AutomaticLossScaler
from lockstep.keras3.scaling.scaled_gradients import Pairs
from lockstep.keras3.scaling.skipping import SkippingWrapper
from lockstep.messages import keras3 as keras_host
from lockstep.messages.base.pipeline import not_an_optimizer
from lockstep.messages.masters import mixed_precision as words
from lockstep.messages.masters import refusals
from lockstep.messages.nouns import KERAS3
from lockstep.messages.scaling.loss_scaling import PATIENCE
from lockstep.messages.workers.agn import refuse_masters_around
from lockstep.quirks import quirks_of
from lockstep.tf.shared.masters.scale import Kinds
from lockstep.tf.shared.scaling.scaled_step import ScaledStep
from lockstep.tf.shared.tensors.gradients import widen

__all__ = ["MixedPrecisionOptimizerWrapper"]

KINDS = Kinds(
    LossScale,
    AutomaticLossScaler,
    DynamicLossScale,
    state=lambda scaler: list(scaler.state.values()),
)


@keras.saving.register_keras_serializable(package="lockstep")
@documented
class MixedPrecisionOptimizerWrapper(SkippingWrapper):
    """...

    A step: g = (float32(d(s loss)/dw) + s d reg(m)/dm) (1/s), where s is the loss
    scale, m the master of w, and reg the regularizer of w from
    ``mp_regularizer_wrapper``. If every gradient is finite, ``optimizer`` updates the
    masters, and w = max(min(m, L), -L) rounded, L = 65504 for float16. Otherwise
    weights, masters, slots and ``iterations`` do not change. Then the scale is updated,
    once. Variables of other dtypes are their own masters; with the policy
    ``mixed_float16`` these are all.

    ``fit`` and ``scale_loss`` scale as in
    :class:`~lockstep.keras3.MixedPrecisionLossScaleOptimizer`. As there, make this the
    outermost wrapper. ``compute_gradients`` returns (float32 gradient, master) with the
    complete g; gradients of the model's variables become g when they are applied. If w
    changes between steps, by ``model.load_weights`` for example, m is updated from it.

    Args:
        optimizer: any Keras optimizer, or a wrapper; it may already be built only if no
            variable has a master. Row clipping goes inside, with the model's variables
            or their paths as keys.

    Raises:
        ...
        NotScalableError: a ValueError and TypeError; ``optimizer`` is no Keras
            optimizer.

    State: masters (slots named ``master``), scale and counts are in ``variables`` and
    in ``.keras`` files.

    Example:
        >>> w = keras.Variable([1.0, 2.0], dtype="float16")
        >>> sgd = keras.optimizers.SGD(2**-12)
        >>> opt = MixedPrecisionOptimizerWrapper(sgd, 8.0)
        >>> for _ in range(3):
        ...     _ = opt.minimize(lambda: keras.ops.sum(w), var_list=[w])
        >>> w.numpy().tolist(), opt.master(w).numpy().tolist()
        ([0.9990234375, 1.9990234375], [0.999267578125, 1.999267578125])
    """

    argument = "optimizer"
    owner = words.WRAPPER
    sums_duplicates = False

    def __init__(
        self,
        optimizer: keras.optimizers.Optimizer,
        loss_scale: float | str | AutomaticLossScaler | LossScale | None = None,
        *,
        clip_norm: float | None = None,
        at_floor: str = "warn",
        floor_patience: int = PATIENCE,
        strict: bool = False,
    ) -> None:
        if not isinstance(optimizer, keras.optimizers.Optimizer):
            raise not_an_optimizer(words.WRAPPER, optimizer, KERAS3)
        quirks = quirks_of(strict)
        if not quirks.arguments_unchecked:
            refuse_masters_around(optimizer)
        words.check_clip_norm(clip_norm)
        words.check_at_floor(at_floor, floor_patience)
        known = KINDS.scale_of(loss_scale, quirks)
        scale = KINDS.as_loss_scale(known, quirks)
        super().__init__(
            optimizer, known, scale, at_floor, floor_patience, clip_norm, strict
        )

    @property
    def masters(self) -> list[keras.Variable]:
        """The masters that exist, in the order of the variables."""
        return [] if self._slots is None else list(self._slots.masters.values())

    @property
    def takes_wide(self) -> bool:
        """Whether half-precision variables accept float32 gradients; strict: no."""
        return not self._quirks.masters_slots

    @property
    def _hides_slots(self) -> bool:
        """Whether TensorFlow 1's interface hides slots and variables."""
        return self._quirks.masters_slots

    def master(self, variable: Any) -> Any:
        """Return the variable that is updated: the master of ``variable``, or itself.

        Raises:
            UnsupportedError: a ValueError; the optimizer is not built.
        """
        if self._slots is None:
            raise keras_host.NO_VARIABLES.error(owner=words.WRAPPER)
        return self._slots.master_of(variable)

    def trains_master(self, variable: Any) -> bool:
        """Whether a variable is trained through a master of its own."""
        only_float16 = self._quirks.half_precision_scalars
        return words.has_master(value_of(variable).dtype.name, only_float16)

    def build_inner(self, variables: list[Any]) -> Slots:
        """Create the masters, and build the wrapped optimizer for them."""
        half = [variable for variable in variables if self.trains_master(variable)]
        base = self.base_optimizer
        if half:
            refuse_several(base, words.WRAPPER, "make the variables float32")
        if half and base.built:
            raise refusals.BUILT_ALREADY.error(name=name_of(half[0]))
        masters = {key_of(variable): make_master(self, variable) for variable in half}
        for variable in half:
            # The user may have excluded it, by name or by identity.
            decays = base._use_weight_decay(variable)
            key = base._var_key(masters[key_of(variable)])
            base._exclude_from_weight_decay_cache[key] = decays
        self._share_row_limits({key_of(masters[key_of(v)]): v for v in half})
        slots = super().build_inner([masters.get(key_of(v), v) for v in variables])
        for variable in half:
            slots.add_master(variable, masters[key_of(variable)])
        return slots

    def _share_row_limits(self, models: dict[Any, Any]) -> None:
        """Make row clipping inside apply the limits of variables to their masters.

        Strict: masters have no limit.
        """
        inner = self.inner_optimizer
        while isinstance(inner, Wrapper) and not self._quirks.masters_row_clipping:
            vars(inner)["_stand_for"] = models
            inner = inner.inner_optimizer

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
        """Differentiate the scaled loss: (unscaled float32 gradient or None, master).

        A sparse gradient stays sparse unless a regularizer adds a dense one. float64
        stays float64. The first call builds the optimizer with ``var_list``.

        Args:
            loss: a callable without arguments that returns a tensor.
            var_list: the variables; None: those that the optimizer was built with.
            grad_loss: the upstream gradient of the loss, unscaled.

        Raises:
            ...
            LossNotCallableError: a RuntimeError; ``loss`` cannot be called.
        """
        if var_list is not None:
            var_list = require_all(var_list, words.WRAPPER)
        options = gate_gradients, aggregation_method, colocate_gradients_with_ops
        pairs = self.differentiate(loss, var_list, *options, grad_loss)
        variables = [variable for _, variable in pairs]

        def prepare() -> None:
            self.ensure_built(variables)
            self._take_over(variables)

        once(words.WRAPPER, prepare)
        masters = self._slots.masters_of(variables)
        return self._of_masters(pairs, masters, replica_count())

    def check_loss(self, dtype: tf.DType) -> None:
        """Raise for a loss that the original could not scale."""
        is_automatic = isinstance(self.scale_object, AutomaticLossScaler)
        refuses = self._quirks.masters_half_loss
        if refuses and is_automatic and dtype != tf.float32:
            raise refusals.HALF_LOSS.error(dtype=dtype.name)

    def _take_over(self, variables: Iterable[Any]) -> list[Any]:
        """Return the masters of variables, after updating them from the variables."""
        variables = list(variables)
        masters = self._slots.masters_of(variables)
        if not self._quirks.masters_slots:
            copy_changes(masters, variables)
        return masters

    def _of_masters(self, pairs: Pairs, masters: list[Any], sharers: int = 1) -> Pairs:
        """Return (unscaled float32 gradient, master) for the gradients of a loss.

        Pairs that already have masters are unchanged. Several ``sharers``, whose
        gradients will be summed, each add their part of the regularizer's gradient.
        """
        factor = self._divisor.look(self._iterations.value)
        factor = factor if sharers == 1 else factor / sharers
        of_masters: Pairs = []
        for (gradient, variable), master in zip(pairs, masters, strict=True):
            if master is not variable:
                if gradient is None and self._quirks.masters_absent:
                    raise refusals.ABSENT_HALF.error(name=name_of(variable))
                wide = None if gradient is None else widen(gradient)
                gradient = regularized(wide, master, variable, factor)
            of_masters.append((gradient, master))
        return self.unscaled(of_masters)

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Update the masters and round them into the model, if all are finite."""
        masters = self._take_over(variables)
        pairs = list(zip(gradients, variables, strict=True))
        pairs = self._of_masters(pairs, masters)
        summed = [(without_duplicates(g), v) for g, v in pairs]
        values = [getattr(g, "values", g) for g, _ in summed if g is not None]
        names = [name_of(variable) for variable in variables]
        pairs_inside = pairs if self.keeps_duplicates else summed
        step = ScaledStep(pairs_inside, names, values, self._overwriting(variables))
        step.look(self.clip_norm)
        if isinstance(self.scale_object, AutomaticLossScaler):
            check_grads = self.scale_object.check_grads
            decides = self._quirks.masters_static_scale
            step.look_at_largest(pairs, check_grads, decides)
        self._step_or_skip(step)

    def _take_step(self, pairs: Pairs) -> None:
        """Update the masters with the wrapped optimizer; round them into the model."""
        masters = [master for gradient, master in pairs if gradient is not None]
        overwrites = self.use_ema and self.ema_overwrite_frequency
        if overwrites or self.gradient_accumulation_steps:
            # Averages, and sums of earlier gradients, also change other masters.
            masters = self._take_over(self._trainable_variables)
        super()._take_step(pairs)
        copy_back(masters, self._slots.models_of(masters))

    @property
    def skips(self) -> bool:
        """Whether a step with inf or NaN in its gradients is skipped."""
        is_automatic = isinstance(self.scale_object, AutomaticLossScaler)
        return is_automatic or not self._quirks.masters_static_scale

    def _move_scale(self, step: ScaledStep) -> None:
        """Update the scale after a step."""
        if step.largest is None:
            super()._move_scale(step)
        else:
            self.scale_object.update_op(*step.largest)

    def finalize_variable_values(self, var_list: Sequence[Any]) -> None:
        """After training, assign the wrapped optimizer's moving averages."""
        masters = self._slots.masters_of(var_list)
        super().finalize_variable_values(masters)
        copy_back(masters, self._slots.models_of(masters))
