"""The classifier in NumPy: one hidden tanh layer, and the gradients of its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from harness.simulator import Weights
from harness.tasks.digits import CLASSES, INPUTS, Images, split
from lockstep.interface import Array

if TYPE_CHECKING:
    from harness.tasks.asynchronous_digits.task import Settings

__all__ = ["Problem"]


class Problem:
    """The images of a seed, and the loss of the classifier.

    Attributes:
        training: the images of the workers' minibatches.
        held_out: the images that measure the center.
        start: the initial weights of every worker.
    """

    def __init__(self, settings: Settings, seed: int) -> None:
        stream = np.random.default_rng(seed)
        self.batch = settings.batch
        self.training, self.held_out = split(stream)
        self.start: Weights = {
            "hidden": _normal(stream, INPUTS, settings.hidden),
            "output": _normal(stream, settings.hidden, CLASSES),
        }

    def gradients(self, weights: Weights, stream: np.random.Generator) -> Weights:
        """Return the gradients of the mean cross-entropy of a new minibatch.

        With very large weights they are non-finite, without a warning.
        """
        with np.errstate(all="ignore"):
            return self._gradients(weights, stream)

    def _gradients(self, weights: Weights, stream: np.random.Generator) -> Weights:
        rows = stream.integers(len(self.training.digit), size=self.batch)
        features, digit = self.training.features[rows], self.training.digit[rows]
        hidden = np.tanh(features @ weights["hidden"])
        error = _softmax(hidden @ weights["output"])
        error[np.arange(self.batch), digit] -= 1
        error /= np.float32(self.batch)
        before_tanh = (error @ weights["output"].T) * (1 - hidden * hidden)
        return {"hidden": features.T @ before_tanh, "output": hidden.T @ error}

    def accuracy(self, weights: Weights) -> float:
        """Return the held-out accuracy.

        It is 0 for non-finite weights.
        """
        if not all(np.isfinite(value).all() for value in weights.values()):
            return 0.0
        hits = _logits(weights, self.held_out).argmax(axis=1) == self.held_out.digit
        return float(hits.mean())


def _logits(weights: Weights, images: Images) -> Array:
    hidden = np.tanh(images.features @ weights["hidden"])
    return np.asarray(hidden @ weights["output"])


def _softmax(logits: Array) -> Array:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _normal(stream: np.random.Generator, inputs: int, outputs: int) -> Array:
    values = stream.normal(size=(inputs, outputs)) / np.sqrt(inputs)
    return np.asarray(values.astype(np.float32))
