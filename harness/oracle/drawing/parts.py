"""Shared by the families: optimizers, variables, gradients step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.oracle.drawing.numbers import (
    PROFILES,
    Generator,
    Profile,
    decimal,
    one_of,
    random_array,
    shape_of,
)

Json = Any


class Gradients(NamedTuple):
    """Gradients of some steps, and whether any is sparse, has duplicates, is absent."""

    steps: list[list[Json]]
    sparse: bool
    duplicates: bool
    absent: bool


def choose_profile(generator: Generator) -> Profile:
    """Draw the distribution of the numbers of a case."""
    weights = np.array([weight for weight, _ in PROFILES])
    position = generator.choice(len(PROFILES), p=weights / weights.sum())
    return PROFILES[int(position)][1]


def optimizer(generator: Generator, names: Sequence[str] = ()) -> dict[str, Json]:
    """Draw a base optimizer with its arguments."""
    known = names or tuple(ARGUMENTS)
    name = str(one_of(generator, known))
    args = {"learning_rate": decimal(generator, -3, 0.3)}
    if generator.random() < 0.3:
        args["learning_rate"] = float(one_of(generator, [0.125, 0.5, 1.0, 2.0]))
    if name == "Ftrl":
        # It divides the difference of two roots by the rate. With a small rate, only
        # rounding errors of the processor's roots remain.
        args["learning_rate"] = max(args["learning_rate"], 0.125)
    return {"name": name, "args": {**args, **ARGUMENTS[name](generator)}}


def momentum(generator: Generator) -> dict[str, Json]:
    """Draw the arguments of Momentum."""
    nesterov = bool(generator.random() < 0.4)
    return {"momentum": decimal(generator, -1, 0), "use_nesterov": nesterov}


def adam(generator: Generator) -> dict[str, Json]:
    """Draw the arguments of Adam, sometimes none."""
    if generator.random() < 0.3:
        return {}
    beta1, beta2 = (one_of(generator, b) for b in ([0.9, 0.5, 0.0], [0.999, 0.9, 0.5]))
    return {"beta1": beta1, "beta2": beta2, "epsilon": decimal(generator, -8, -1)}


def adamw(generator: Generator) -> dict[str, Json]:
    """Draw the arguments of AdamW."""
    return {**adam(generator), "weight_decay": decimal(generator, -4, -1)}


def adagrad(generator: Generator) -> dict[str, Json]:
    """Draw the arguments of Adagrad."""
    return {"initial_accumulator_value": decimal(generator, -3, 0)}


def rmsprop(generator: Generator) -> dict[str, Json]:
    """Draw the arguments of RMSProp."""
    centered = bool(generator.random() < 0.4)
    decay, mu = one_of(generator, [0.9, 0.5, 0.99]), one_of(generator, [0.0, 0.5, 0.9])
    epsilon = decimal(generator, -10, -2)
    return {"decay": decay, "momentum": mu, "epsilon": epsilon, "centered": centered}


def ftrl(generator: Generator) -> dict[str, Json]:
    """Draw the arguments of Ftrl."""
    arguments = {
        "l1_regularization_strength": float(one_of(generator, [0.0, 0.01, 0.5])),
        "l2_regularization_strength": float(one_of(generator, [0.0, 0.02, 1.0])),
    }
    if generator.random() < 0.3:
        arguments["l2_shrinkage_regularization_strength"] = decimal(generator, -3, -1)
    if generator.random() < 0.3:
        arguments["learning_rate_power"] = -decimal(generator, -1, 0)
    return arguments


ARGUMENTS = {
    "GradientDescent": lambda generator: {},
    "Momentum": momentum,
    "Adam": adam,
    "AdamW": adamw,
    "Adagrad": adagrad,
    "RMSProp": rmsprop,
    "Ftrl": ftrl,
}


class Draw:
    """The variables of a case, and gradients for them.

    A third of the variables with rows get sparse gradients: rows in any order, with
    duplicates, and sometimes no rows. The original's sparse kernels of Adagrad and Ftrl
    reject rows without elements, so these are not drawn.
    """

    def __init__(self, generator: Generator, profile: Profile) -> None:
        self.generator = generator
        self.profile = profile
        count = int(generator.integers(1, 4))
        self.shapes = [shape_of(generator, profile) for _ in range(count)]
        self.sparse = [
            bool(shape and math.prod(shape) and generator.random() < 0.35)
            for shape in self.shapes
        ]

    def variables(self) -> list[dict[str, Json]]:
        """Draw the variables."""
        finite = self.profile._replace(special=self.profile.special / 8)
        return [
            {
                "name": f"v{k}",
                "dtype": self.profile.dtype,
                "shape": list(shape),
                "value": random_array(self.generator, shape, finite),
            }
            for k, shape in enumerate(self.shapes)
        ]

    def gradients(self, count: int, absent: float = 0.08) -> Gradients:
        """Draw gradients for ``count`` steps. At least one per step is present."""
        steps = [self.step(absent) for _ in range(count)]
        every = [gradient for step in steps for gradient in step]
        rows = [gradient["indices"] for gradient in every if isinstance(gradient, dict)]
        repeated = any(len(set(row)) < len(row) for row in rows)
        return Gradients(steps, bool(rows), repeated, None in every)

    def step(self, absent: float) -> list[Json]:
        """Draw the gradients of one step."""
        missing = self.generator.random(len(self.shapes)) < absent
        missing[int(self.generator.integers(len(self.shapes)))] = False
        return [
            None if gone else self.gradient(shape, sparse)
            for gone, shape, sparse in zip(
                missing, self.shapes, self.sparse, strict=True
            )
        ]

    def gradient(self, shape: tuple[int, ...], sparse: bool) -> Json:
        """Draw one gradient. One in seven is all zero."""
        profile = self.profile
        zero = self.generator.random() < 0.15
        if not sparse:
            values = random_array(self.generator, shape, profile)
            return zeros(shape) if zero else values
        count = int(one_of(self.generator, [0, 1, 2, 3, 5, 9]))
        indices = self.generator.integers(shape[0], size=count).tolist()
        block = (count, *shape[1:])
        values = zeros(block) if zero else random_array(self.generator, block, profile)
        if count > 1 and self.generator.random() < 0.2:
            indices[1], values[1] = indices[0], negative(values[0])
        return {"indices": indices, "values": values, "dense_shape": list(shape)}


def zeros(shape: tuple[int, ...]) -> Json:
    """Return zeros in the form of a golden file."""
    return np.zeros(shape).tolist()


def negative(values: Json) -> Json:
    """Return the negative of a row, so that the sum of both is zero."""
    if isinstance(values, list):
        return [negative(value) for value in values]
    if isinstance(values, str):
        return values
    return -values
