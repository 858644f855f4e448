"""The classifier in NumPy: one hidden tanh layer, and the gradients of its loss."""

from __future__ import annotations

import numpy as np

from harness.simulator.methods import Weights
from harness.tasks.digits import CLASSES, INPUTS, split
from lockstep.interface import Array


class Problem:
    """The images of a seed, and the loss of the classifier.

    ``training`` has the images of the workers' minibatches, ``held_out`` those that
    measure the center, and ``start`` the initial weights of every worker.
    """

    def __init__(self, hidden: int, batch: int, seed: int) -> None:
        stream = np.random.default_rng(seed)
        self.batch = batch
        self.training, self.held_out = split(stream)
        self.start: Weights = {
            "hidden": _normal(stream, INPUTS, hidden),
            "output": _normal(stream, hidden, CLASSES),
        }

    @np.errstate(all="ignore")  # Very large weights give non-finite gradients.
    def gradients(
        self, weights: Weights, worker: int, stream: np.random.Generator
    ) -> Weights:
        """Return the gradients of the mean cross-entropy of a new minibatch."""
        rows = stream.integers(len(self.training.digit), size=self.batch)
        features, digit = self.training.features[rows], self.training.digit[rows]
        hidden = np.tanh(features @ weights["hidden"])
        logits = hidden @ weights["output"]
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = powers / powers.sum(axis=1, keepdims=True)
        error[np.arange(self.batch), digit] -= 1
        error /= np.float32(self.batch)
        before_tanh = (error @ weights["output"].T) * (1 - hidden * hidden)
        return {"hidden": features.T @ before_tanh, "output": hidden.T @ error}

    def accuracy(self, weights: Weights) -> float:
        """Return the held-out accuracy; 0 for non-finite weights."""
        if not all(np.isfinite(value).all() for value in weights.values()):
            return 0.0
        hidden = np.tanh(self.held_out.features @ weights["hidden"])
        hits = (hidden @ weights["output"]).argmax(axis=1) == self.held_out.digit
        return float(hits.mean())


def _normal(stream: np.random.Generator, inputs: int, outputs: int) -> Array:
    values = stream.normal(size=(inputs, outputs)) / np.sqrt(inputs)
    return np.asarray(values.astype(np.float32))
