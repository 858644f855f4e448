"""Shared code of tasks with text: bytes of Python's help, and a causal transformer.

The text is part of Python, so nothing is downloaded. Windows and first weights are
drawn in NumPy, so all backends start with the same data.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from lockstep.interface import Array

BYTES = 256
"""The number of values of a byte."""

EVERY = 10
"""One in this many paragraphs is held out."""

EMBEDDED = 0.3
"""The standard deviation of the first embeddings. Smaller ones train more slowly."""


class Text(NamedTuple):
    """The training text and the held-out text: [bytes] uint8 each."""

    training: Array
    held_out: Array


class Shape(NamedTuple):
    """The sizes of a transformer; ``width`` is a multiple of ``heads``."""

    width: int = 96
    layers: int = 2
    heads: int = 4
    context: int = 64


class Plan(NamedTuple):
    """All data of a run.

    Attributes:
        batches: [steps, batch, context + 1] int32, the training windows.
        held_out: [windows, context + 1] int32, the same for every seed.
        weights: the first weights of the transformer by name.
    """

    batches: Array
    held_out: Array
    weights: dict[str, Array]


def make_plan(of: Any, seed: int) -> Plan:
    """Draw the data of a run whose settings ``of`` have the sizes and a ``shape``."""
    streams = [np.random.default_rng((seed, k)) for k in range(2)]
    text, size = split(), (of.steps, of.batch)
    batches = draw_windows(text.training, *size, of.context, streams[0])
    held_out = held_out_windows(text.held_out, of.windows, of.context)
    return Plan(batches, held_out, first_weights(of.shape, streams[1]))


@cache
def split() -> Text:
    """Return the topics of Python's help, split by paragraphs.

    Topics repeat one another. Each paragraph is kept only once, so no held-out
    paragraph is also in the training text.
    """
    from pydoc_data.topics import topics

    paragraphs = dict.fromkeys(
        paragraph
        for name in sorted(topics)
        for paragraph in re.split(r"\n{2,}", topics[name].strip("\n"))
    )
    parts: tuple[list[str], list[str]] = ([], [])
    for k, paragraph in enumerate(paragraphs):
        parts[k % EVERY == EVERY - 1].append(paragraph)
    texts = ("\n\n".join(part).encode() for part in parts)
    return Text(*(np.frombuffer(text, np.uint8) for text in texts))


def draw_windows(
    text: Array, steps: int, batch: int, context: int, stream: np.random.Generator
) -> Array:
    """Return random windows: [steps, batch, context + 1] int32.

    The model sees all bytes but the last, and predicts all but the first.
    """
    starts = stream.integers(len(text) - context, size=(steps, batch, 1))
    windows: Array = text[starts + np.arange(context + 1)]
    return windows.astype(np.int32)


def held_out_windows(text: Array, windows: int, context: int) -> Array:
    """Return windows at equal distances: [windows, context + 1] int32."""
    starts = np.linspace(0, len(text) - context - 1, windows).astype(np.int64)
    windows_of: Array = text[starts[:, None] + np.arange(context + 1)]
    return windows_of.astype(np.int32)


def first_weights(shape: Shape, stream: np.random.Generator) -> dict[str, Array]:
    """Return the first weights by name, float32; matrices are [inputs, outputs].

    Matrices have the deviation 1 / sqrt(inputs). The matrices whose outputs are added
    to the residual sum are smaller, by a factor of 1 / sqrt(2 layers).
    """
    width = shape.width
    sizes = {"bytes": (BYTES, width), "positions": (shape.context, width)}
    for k in range(shape.layers):
        sizes |= {
            f"layer {k}/attention/input": (width, 3 * width),
            f"layer {k}/attention/output": (width, width),
            f"layer {k}/mlp/input": (width, 4 * width),
            f"layer {k}/mlp/output": (4 * width, width),
        }
    sizes["logits"] = (width, BYTES)
    smaller = (2 * shape.layers) ** -0.5
    weights: dict[str, Array] = {}
    for name, size in sizes.items():
        deviation = size[0] ** -0.5 * (smaller if name.endswith("/output") else 1.0)
        if name in ("bytes", "positions"):
            deviation = EMBEDDED
        weights[name] = (deviation * stream.standard_normal(size)).astype(np.float32)
    norms = ["last norm"]
    for k in range(shape.layers):
        norms += [f"layer {k}/attention/norm", f"layer {k}/mlp/norm"]
    return weights | {name: np.ones(width, np.float32) for name in norms}
