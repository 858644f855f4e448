"""Scaling of a loss, and division of its gradients by the scale, exactly once."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from lockstep.docstrings import documented
from lockstep.messages.base import refusals as base_refusals
from lockstep.messages.base.pairs import refuse_complex
from lockstep.messages.scaling import loss_scaling as words
from lockstep.messages.scaling import refusals
from lockstep.messages.scaling.loss_scale import check_gradient_dtype
from lockstep.quirks import Quirks
from lockstep.tf.replicas import Pairs
from lockstep.tf.shared.gradients import (
    HALF,
    Gradient,
    as_tensor,
    divided,
    replica_number,
    widen,
    with_values,
)
from lockstep.tf.shared.gradients import times_reciprocal as times
from lockstep.tf.wrapper import Wrapper, as_gradient, checked_arguments

__all__ = ["ScaledGradients", "narrowed", "unscaled"]


Reference: TypeAlias = Callable[[], Any]
"""A weak reference to a graph."""

BRANCH = "CondBranchFuncGraph"
"""The class of the graph of one branch of ``tf.cond``; it has no public name."""


class ScaledGradients(Wrapper):
    """A wrapper that scales a loss, and divides its gradients by the scale."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._by_hand = ByHand()

    @property
    def factor(self) -> float | tf.Tensor:
        """The current factor of a loss."""
        raise NotImplementedError

    def check_loss(self, dtype: tf.DType) -> None:
        """Raise for a loss of a dtype that cannot be scaled."""
        raise NotImplementedError

    def _differentiate(self, *arguments: Any) -> tuple[Pairs, float | tf.Tensor]:
        """Differentiate the scaled loss; return the pairs and their divisor.

        Arguments and errors are as in
        :meth:`~lockstep.tf.wrapper.Wrapper.compute_gradients`.
        """
        checked = checked_arguments(type(self).__name__, *arguments)
        self._by_hand.clear()
        # Read once: the loss and its gradients must use the same scale.
        factor = self.factor
        checked["loss"] = scaled(checked["loss"], factor, self.check_loss)
        pairs = self.inner_optimizer.compute_gradients(**checked)
        if not self.strict:
            refuse_complex(
                self.owner, [g.dtype.name for g, _ in pairs if g is not None]
            )
        return pairs, factor

    @tf.autograph.experimental.do_not_convert
    def scale_loss(self, loss: Any) -> Any:
        """Return ``loss`` times the loss scale, for a gradient tape.

        :meth:`unscale_gradients` divides its gradients by the scale. If it was not
        called, ``apply_gradients`` does so.

        Args:
            loss: a tensor, or a callable without arguments. For a callable a callable
                is returned.

        Raises:
            LossNotCallableError: a TypeError; None or a string.
        """
        if loss is None or isinstance(loss, str):
            raise base_refusals.NO_LOSS.error(owner=self.owner, got=loss)
        product = scaled(loss, self.factor, self.check_loss)
        self._by_hand.note(is_unscaled=False)
        return product

    @tf.autograph.experimental.do_not_convert
    @documented
    def unscale_gradients(self, gradients: Iterable[Gradient]) -> list[Gradient]:
        """...

        Args:
            gradients: the gradients that a tape returned for a list of variables. They
                are divided even if ``scale_loss`` was not called.
        """
        listed = words.listed_gradients(gradients, self.owner, tf.is_tensor(gradients))
        self._by_hand.refuse_second(self.owner)
        tensors = [as_gradient(g, f"gradient {k}", self.owner) for k, g in listed]
        for gradient in tensors:
            if gradient is not None:
                check_gradient_dtype(gradient.dtype.name)
        pairs = [(in_float32(gradient), None) for gradient in tensors]
        pairs = unscaled(pairs, self.factor, self._quirks)
        self._by_hand.note(is_unscaled=True)
        return [gradient for gradient, _ in pairs]

    def unscaled_once(self, pairs: Pairs) -> Pairs:
        """Return unscaled gradients; divide them if only ``scale_loss`` was called."""
        if self._by_hand.take(self.owner):
            return pairs
        return unscaled(
            [(in_float32(g), v) for g, v in pairs], self.factor, self._quirks
        )

    def _unscaled(self, pairs: Pairs) -> Pairs:
        return self.unscaled_once(pairs)


class Entry(NamedTuple):
    """The last call for the gradients of a replica, its mode and its graph.

    ``branch``: the branch of a condition that has applied the gradients, if any.
    """

    is_unscaled: bool
    eagerly: bool
    graph: Reference
    branch: Reference | None = None

    def is_for(self, graph: tf.Graph) -> bool:
        """Whether a step in ``graph`` can be the first one with the gradients."""
        if self.branch is None:
            return True
        # Only one branch of a condition runs, so each may apply the same gradients.
        return self.branch() is not graph and self.is_outside(graph)

    def is_outside(self, graph: Any) -> bool:
        """Whether ``graph`` is a branch of a condition in the graph of the call."""
        while type(graph).__name__ == BRANCH:
            graph = graph.outer_graph
            if graph is self.graph():
                return True
        return False


class ByHand:
    """Tracks whether gradients are scaled, from ``scale_loss`` to the step.

    There is one entry per replica. In a ``tf.function`` this code runs only during
    tracing, so eager code cannot see later calls of the function. If both are mixed,
    less is checked.
    """

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}
        self._steps_in_functions = False

    def note(self, is_unscaled: bool) -> None:
        """Record that a loss was scaled, or that its gradients were unscaled."""
        graph = weakref.ref(tf.compat.v1.get_default_graph())
        entry = Entry(is_unscaled, tf.executing_eagerly(), graph)
        self._entries[replica_number()] = entry

    def refuse_second(self, owner: str) -> None:
        """Raise if the gradients of this step are already unscaled."""
        entry = self._entries.get(replica_number())
        unseen_step = self._steps_in_functions and tf.executing_eagerly()
        if entry is not None and entry.is_unscaled and not unseen_step:
            raise refusals.UNSCALED_TWICE.error(
                owner=f"{owner}.unscale_gradients", remedy=words.SCALE_AGAIN
            )

    def take(self, owner: str) -> bool:
        """Return whether the gradients of a step are unscaled, and remove the entry.

        Raises:
            UnsupportedError: a function scaled the loss and the step is eager.
        """
        if not self._entries:
            return True
        replica, eager = replica_number(), tf.executing_eagerly()
        graph = tf.compat.v1.get_default_graph()
        entry = self._entries.get(replica)
        if entry is None or not entry.is_for(graph):
            self._entries.pop(replica, None)
            return True
        if eager and not (entry.eagerly or entry.is_unscaled):
            raise refusals.SCALED_IN_FUNCTION.error(owner=owner)
        if entry.eagerly and not eager:
            self._steps_in_functions = True
        del self._entries[replica]
        if entry.is_outside(graph) and not entry.is_unscaled:
            self._entries[replica] = entry._replace(branch=weakref.ref(graph))
        return entry.is_unscaled

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()


def scaled(
    loss: Any, scale: float | tf.Tensor, check: Callable[[tf.DType], None]
) -> Any:
    """Return ``loss`` times the scale in the loss' dtype; for a callable a callable.

    ``check`` raises for an unsupported dtype of the loss.
    """
    if callable(loss):
        return lambda: scaled(tf.convert_to_tensor(loss()), scale, check)
    loss = tf.convert_to_tensor(loss)
    check(loss.dtype)
    return loss * as_tensor(scale, loss.dtype)


def unscaled(pairs: Pairs, scale: float | tf.Tensor, quirks: Quirks) -> Pairs:
    """Return pairs of g (1/s), computed in float32 for half precision; None stays None.

    Strict: also for s > 2^126, where 1/s is subnormal and flushed to 0.
    """
    present = [gradient for gradient, _ in pairs if gradient is not None]
    values = [getattr(gradient, "values", gradient) for gradient in present]
    if quirks.multitask_subnormals:
        reciprocal = 1.0 / scale
        quotients = iter([times(value, reciprocal) for value in values])
    else:
        quotients = iter(divided(values, scale))
    return [(g if g is None else with_values(g, next(quotients)), v) for g, v in pairs]


def in_float32(gradient: Gradient) -> Gradient:
    """Return a half-precision gradient in float32; return others unchanged."""
    if gradient is None or gradient.dtype not in HALF:
        return gradient
    return widen(gradient)


def narrowed(pairs: Pairs) -> Pairs:
    """Return the pairs, each gradient in the dtype of its variable."""
    narrow: Pairs = []
    for gradient, variable in pairs:
        dtype = variable.dtype.base_dtype
        if gradient is not None and gradient.dtype != dtype:
            values = tf.cast(getattr(gradient, "values", gradient), dtype)
            gradient = with_values(gradient, values)
        narrow.append((gradient, variable))
    return narrow
