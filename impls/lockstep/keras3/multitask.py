"""The multitask wrapper and its clipping function, for Keras 3."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.keras3.base.gradients import (
    Gradient,
    as_gradient,
    densify,
    key_of,
    name_of,
    value_of,
)
from lockstep.keras3.base.slots import preserved, refuse_several
from lockstep.keras3.base.wrapper import Wrapper, layers_of
from lockstep.messages import keras3 as keras_host
from lockstep.messages import multitask as words
from lockstep.messages.base.pairs import as_pairs
from lockstep.messages.nouns import KERAS3
from lockstep.quirks import quirks_of
from lockstep.tf.shared.clipping.clip_gradients import clip
from lockstep.tf.shared.tensors.zero_test import all_zero_flags, some_may_be_zero

__all__ = ["MultitaskOptimizerWrapper", "clip_gradients_by_global_norm"]


@documented
@keras.saving.register_keras_serializable(package="lockstep")
class MultitaskOptimizerWrapper(Wrapper):
    """...

    Weight decay is skipped too. With Keras' gradient accumulation the sum is tested, at
    the step that applies it.

    ``iterations`` counts every call, even if every gradient is zero: it is Keras'
    global step, which schedules read. Keras' Adam computes its bias correction from it,
    so the correction advances even for skipped variables.

    Args:
        opt: any Keras optimizer, or a wrapper. It may already be built.
        strict: reproduce the original with its quirks: ``opt`` is changed in place, so
            it also skips zeros if it is used directly. Around another wrapper this has
            no effect. A multitask wrapper as ``opt`` raises.

    Raises:
        NotAnOptimizerError: a TypeError; ``opt`` is no ``keras.optimizers.Optimizer``.
        UnsupportedError: a ValueError; ``keras.optimizers.MultiOptimizer``. Wrap the
            optimizers inside it instead.

    Example:
        >>> weight = keras.Variable([1.0, 2.0])
        >>> sgd = keras.optimizers.SGD(0.5, momentum=0.5)
        >>> optimizer = MultitaskOptimizerWrapper(sgd)
        >>> for gradient in ([1.0, 0.0], [0.0, 0.0]):
        ...     optimizer.apply([keras.ops.array(gradient)], [weight])
        >>> weight.numpy(), optimizer.get_slot(weight, "momentum").numpy()
        (array([0.5, 2. ], dtype=float32), array([-0.5,  0. ], dtype=float32))
    """

    def __init__(self, opt: keras.optimizers.Optimizer, strict: bool = False) -> None:
        quirks = quirks_of(strict)
        nesting = quirks.multitask_nesting
        refused = nesting and isinstance(opt, MultitaskOptimizerWrapper)
        if refused or not isinstance(opt, keras.optimizers.Optimizer):
            raise words.not_an_optimizer(opt, KERAS3, nesting)
        refuse_several(opt, words.WRAPPER, "wrap each optimizer inside it")
        super().__init__(opt)
        self.strict = strict
        if quirks.multitask_in_place and not isinstance(opt, Wrapper):
            # The original replaced the methods of opt that update a variable. A wrapper
            # never calls its own, so there this has no effect.
            vars(self)["_step"] = opt.apply
            vars(opt)["apply"] = self.apply

    def update(self, gradients: list[Gradient], variables: list[Any]) -> None:
        """Take the wrapped optimizer's step, and restore the skipped variables.

        A graph contains three steps, of which one runs. They update all variables, some
        of them, or none. In most steps no gradient is all zero, so the first one runs,
        and only one condition is computed.
        """
        present, judged = self._judged(gradients, variables)
        zero = self._look(gradients, variables, present, judged)
        in_place = self._quirks.multitask_in_place
        if in_place and isinstance(self.inner_optimizer, Wrapper):
            super().update(gradients, variables)
            self._report_inside(variables)
            return

        def update_all() -> None:
            self._step(*map(list, zip(*present, strict=True)))

        def leave_zeros_out() -> None:
            flags = all_zero_flags(judged) if zero is None else zero
            tested = [self._is_tested(gradient) for gradient, _ in present]
            left_alone = tf.logical_and(tf.logical_and(flags, tested), self._is_due())

            def update_some() -> None:
                if zero is not None and self._may_push():
                    self._update_kept(present, left_alone.numpy())
                    return
                with preserved([self._state(v) for _, v in present], left_alone):
                    update_all()

            if self.use_ema:
                update_some()
            else:
                tf.cond(tf.reduce_all(left_alone), self._count, update_some)

        rare = some_may_be_zero(judged) if zero is None else tf.reduce_any(zero)
        tf.cond(rare, leave_zeros_out, update_all)
        self._report_inside(variables)

    def _may_push(self) -> bool:
        """Whether a step inside may push to another process, which is not undone."""
        return any(getattr(layer, "_pushes_away", False) for layer in layers_of(self))

    def _update_kept(
        self, present: list[tuple[Gradient, Any]], left_alone: np.ndarray
    ) -> None:
        """Take the wrapped optimizer's step without the skipped variables."""
        pairs = zip(present, left_alone, strict=True)
        others = [pair for pair, is_left_alone in pairs if not is_left_alone]
        if others:
            self._step(*map(list, zip(*others, strict=True)))
        else:
            self._count()

    def _report_inside(self, variables: list[Any]) -> None:
        """Report that a wrapper inside skipped the step, if it did."""
        own = self.last_step
        if tf.executing_eagerly() and own.applied:
            inner = getattr(self.inner_optimizer, "last_step", None)
            names = [name_of(variable) for variable in variables]
            self.last_step = words.report_through(own, inner, names)

    def _step(self, gradients: list[Gradient], variables: list[Any]) -> None:
        self.inner_optimizer.apply(gradients, variables)

    def _count(self) -> None:
        """Count a step without updates, which ends a period of accumulation.

        Its sums may be zero because gradients cancel, so they are cleared, as in Keras.
        Nadam's product of momenta, which follows the count, is changed by Keras' update
        of no variables.
        """
        self.base_optimizer._backend_update_step([], [], 0.0)
        self._iterations.assign_add(1)
        if self.gradient_accumulation_steps:
            for variable in self._trainable_variables:
                gathered = value_of(self._slots.of(variable)[keras_host.ACCUMULATOR])
                gathered.assign(tf.zeros_like(gathered))

    def _judged(
        self, gradients: list[Gradient], variables: list[Any]
    ) -> tuple[list[tuple[Gradient, Any]], list[Gradient]]:
        """Return the pairs with a gradient, and for each the tensor to test.

        With gradient accumulation it is the sum, to which an absent gradient adds 0.
        """
        pairs = list(zip(gradients, variables, strict=True))
        if not self.gradient_accumulation_steps:
            pairs = [(g, v) for g, v in pairs if g is not None]
            return pairs, [self.values_of(g) for g, _ in pairs]
        pairs = [(densify(g, v), v) for g, v in pairs]
        sums = [value_of(self._slots.of(v)[keras_host.ACCUMULATOR]) for _, v in pairs]
        both = zip(pairs, sums, strict=True)
        # The sum of a half-precision variable with a master is float32.
        return pairs, [tf.cast(g, s.dtype) + s for (g, _), s in both]

    def _is_tested(self, gradient: Gradient) -> bool:
        """Whether a gradient of zeros is skipped.

        The original does not test sparse gradients of a rule that gets duplicate rows
        unsummed, which is gradient descent.
        """
        return not (self.keeps_duplicates and isinstance(gradient, tf.IndexedSlices))

    def _is_due(self) -> Any:
        """Whether this step applies the accumulated gradients, if there are any."""
        period = self.gradient_accumulation_steps
        return tf.equal((self._iterations.value + 1) % period, 0) if period else True

    def _look(
        self,
        gradients: list[Gradient],
        variables: list[Any],
        present: list[tuple[Gradient, Any]],
        judged: list[Gradient],
    ) -> tf.Tensor | None:
        """In eager mode, return which of ``judged`` are all zero, and report it."""
        if not tf.executing_eagerly():
            return None
        zero = np.zeros(len(present), bool)
        if some_may_be_zero(judged):
            zero = np.asarray(all_zero_flags(judged))
        flags = {key_of(v): flag for (_, v), flag in zip(present, zero, strict=True)}
        absent = [gradient is None for gradient in gradients]
        zeros = [
            not gone and bool(flags[key_of(variable)])
            for variable, gone in zip(variables, absent, strict=True)
        ]
        self.last_step = words.report(list(map(name_of, variables)), zeros, absent)
        return tf.constant(zero)

    def _state(self, variable: Any) -> list[tf.Variable]:
        """Return a variable and its slots; with a master, both and their slots.

        The moving average is left out, because it follows the variable and starts at
        the first step whatever the gradient is. So is the accumulator, which Keras
        resets.
        """
        variable = self._slots.model_of(variable)
        parts = self._restored_slots(variable)
        # A slot may be a master or a shared weight, which has its own slots.
        parts += [further for slot in parts for further in self._restored_slots(slot)]
        return [value_of(part) for part in (variable, *parts)]

    def _restored_slots(self, variable: Any) -> list[Any]:
        apart = (keras_host.ACCUMULATOR, keras_host.AVERAGE)
        slots = self._slots.of(variable)
        return [slot for name, slot in slots.items() if name not in apart]

    def get_config(self) -> dict[str, Any]:
        """Return the arguments for ``from_config``."""
        return {**super().get_config(), "strict": self.strict}


@tf.autograph.experimental.do_not_convert
@documented
def clip_gradients_by_global_norm(
    gradients_variables: Iterable[tuple[Any, Any]],
    clip_norm: float = 20.0,
    error_if_nonfinite: bool = False,
    strict: bool = False,
) -> tuple[list[tuple[Gradient, Any]], tf.Tensor]:
    """...

    Args:
        error_if_nonfinite: raise instead of returning NaN; in a ``tf.function`` an
            assertion, which raises ``tf.errors.InvalidArgumentError`` when it runs.

    Origin: ``tf.contrib.opt.clip_gradients_by_global_norm``, TensorFlow 1.15. In
    ``fit`` the argument ``global_clipnorm`` of Keras' optimizers does the same.

    Example:
        >>> weight = keras.Variable([0.0, 0.0])
        >>> pairs = [(keras.ops.array([3.0, 4.0]), weight)]
        >>> result, norm = clip_gradients_by_global_norm(pairs, 2.5)
        >>> result[0][0].numpy().tolist(), float(norm)
        ([1.5, 2.0], 5.0)
    """
    pairs = as_pairs(gradients_variables, words.CLIP)
    gradients = [as_gradient(g, v, words.CLIP) for g, v in pairs]
    clipped, norm = clip(gradients, clip_norm, error_if_nonfinite, strict)
    return [(g, v) for g, (_, v) in zip(clipped, pairs, strict=True)], norm
