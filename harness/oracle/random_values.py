"""Random values, variables, gradients and optimizers, drawn from a generator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from harness.oracle.live.cases import encoded

Generator = np.random.Generator
Shape = tuple[int, ...]
Json = Any

# Below and above 8 elements (vectors of the kernels) and 64 (blocks of a sum), empty
# shapes, single elements and scalars.
SHAPES: Sequence[Shape] = (
    *[(), (1,), (3,), (7,), (8,), (9,), (17,), (65,), (300,), (0,)],
    *[(2, 3), (3, 2), (4, 1), (1, 5), (5, 8), (3, 16), (4, 67), (0, 3), (4, 0)],
    *[(1, 2, 3), (2, 3, 2), (3, 2, 9), (2, 0, 2)],
)


class Profile(NamedTuple):
    """The distribution of the numbers of a case.

    ``lowest`` and ``highest`` are decimal exponents of magnitudes, ``special`` is the
    share of elements that are NaN or infinite, ``size`` the largest number of elements
    of one variable. Except for ordinary numbers, ``name`` is the kind of most cases.
    """

    name: str
    lowest: float
    highest: float
    special: float = 0.0
    dtype: str = "float32"
    size: int = 300


OPTIMIZERS = (
    *("GradientDescent", "Momentum", "Adam", "AdamW"),
    *("Adagrad", "RMSProp", "Ftrl"),
)

ORDINARY = Profile("ordinary", -1.5, 0.5)

PROFILES: Sequence[tuple[float, Profile]] = (
    (0.42, ORDINARY),
    (0.10, Profile("subnormal", -46, -36)),
    (0.08, Profile("subnormal", -30, -14)),
    (0.08, Profile("extreme", -30, 16)),
    (0.06, Profile("extreme", 17, 39, size=7)),
    (0.05, Profile("nonfinite", -1.5, 0.5, special=0.02)),
    (0.05, Profile("nonfinite", -1.5, 0.5, special=0.2, size=7)),
    (0.10, Profile("float16", -1.5, 0.5, dtype="float16")),
    (0.06, Profile("extreme", -8, 5.2, dtype="float16", size=7)),
)
"""Pairs (weight, profile). Squares of the second are subnormal or 0.

Profiles with squares that overflow have fewer than eight elements. With more,
TensorFlow 1.15 refines the processor's approximation of a root, and the root of
infinity is NaN.
"""


def one_of(generator: Generator, choices: Sequence[Any]) -> Any:
    """Draw one of ``choices`` with equal probabilities."""
    return choices[int(generator.integers(len(choices)))]


def decimal(generator: Generator, lowest: float, highest: float) -> float:
    """Draw a number with three digits and a uniformly distributed exponent."""
    return float(f"{10 ** generator.uniform(lowest, highest):.2e}")


def draw_profile(generator: Generator) -> Profile:
    """Draw the distribution of the numbers of a case."""
    weights = np.array([weight for weight, _ in PROFILES])
    position = generator.choice(len(PROFILES), p=weights / weights.sum())
    return PROFILES[int(position)][1]


def draw_array(generator: Generator, shape: Shape, profile: Profile) -> Json:
    """Draw an array, in the form of a golden file.

    A tenth of the elements are zeros of either sign. Another tenth are small whole
    numbers, so that sums cancel and norms are hit exactly.
    """
    exponents = generator.uniform(profile.lowest, profile.highest, shape)
    signs = generator.choice([-1.0, 1.0], shape)
    values = np.asarray(signs * 10.0**exponents)
    share = generator.random(shape)
    values = np.where(share < 0.1, signs * 0.0, values)
    if profile.name in ("ordinary", "nonfinite"):
        whole = generator.integers(-4, 5, shape).astype(float)
        values = np.where((share > 0.1) & (share < 0.2), whole, values)
    odd = generator.choice([np.nan, np.inf, -np.inf], shape)
    values = np.where(share > 1 - profile.special, odd, values)
    largest = float(np.finfo(profile.dtype).max)
    values = np.where(np.isinf(values), values, np.clip(values, -largest, largest))
    return encoded(values.astype(profile.dtype))


class Gradients(NamedTuple):
    """Gradients of some steps, and whether any is sparse, repeats a row, is absent."""

    steps: list[list[Json]]
    sparse: bool
    duplicates: bool
    absent: bool


class Draw:
    """The variables of a case, and gradients for them.

    A third of the variables with rows get sparse gradients: rows in any order, with
    duplicates, and sometimes no rows. The original's sparse kernels of Adagrad and Ftrl
    reject rows without elements, so these are not drawn.
    """

    def __init__(self, generator: Generator, profile: Profile) -> None:
        self.generator = generator
        self.profile = profile
        fitting = [shape for shape in SHAPES if math.prod(shape) <= profile.size]
        count = int(generator.integers(1, 4))
        self.shapes: list[Shape] = [one_of(generator, fitting) for _ in range(count)]
        self.sparse = [
            bool(shape and math.prod(shape) and generator.random() < 0.35)
            for shape in self.shapes
        ]

    def variables(self) -> list[dict[str, Json]]:
        """Draw the variables."""
        profile = self.profile._replace(special=self.profile.special / 8)
        return [
            {
                "name": f"v{k}",
                "dtype": profile.dtype,
                "shape": list(shape),
                "value": draw_array(self.generator, shape, profile),
            }
            for k, shape in enumerate(self.shapes)
        ]

    def gradients(self, count: int, absent: float = 0.08) -> Gradients:
        """Draw gradients for ``count`` steps. At least one per step is present."""
        steps = [self._step(absent) for _ in range(count)]
        every = [gradient for step in steps for gradient in step]
        rows = [gradient["indices"] for gradient in every if isinstance(gradient, dict)]
        repeated = any(len(set(row)) < len(row) for row in rows)
        return Gradients(steps, bool(rows), repeated, None in every)

    def _step(self, absent: float) -> list[Json]:
        missing = self.generator.random(len(self.shapes)) < absent
        missing[int(self.generator.integers(len(self.shapes)))] = False
        return [
            None if gone else self._gradient(shape, sparse)
            for gone, shape, sparse in zip(
                missing, self.shapes, self.sparse, strict=True
            )
        ]

    def _gradient(self, shape: Shape, sparse: bool) -> Json:
        """Draw one gradient. One in seven is all zero."""
        zero = self.generator.random() < 0.15
        if not sparse:
            values = draw_array(self.generator, shape, self.profile)
            return np.zeros(shape).tolist() if zero else values
        count = int(one_of(self.generator, [0, 1, 2, 3, 5, 9]))
        indices = self.generator.integers(shape[0], size=count).tolist()
        block = (count, *shape[1:])
        values = np.zeros(block).tolist()
        if not zero:
            values = draw_array(self.generator, block, self.profile)
        if count > 1 and self.generator.random() < 0.2:
            indices[1], values[1] = indices[0], negative(values[0])
        return {"indices": indices, "values": values, "dense_shape": list(shape)}


def negative(values: Json) -> Json:
    """Return the negative of a row, so that the sum of both is zero."""
    if isinstance(values, list):
        return [negative(value) for value in values]
    return values if isinstance(values, str) else -values


def draw_optimizer(
    generator: Generator, names: Sequence[str] = OPTIMIZERS
) -> dict[str, Json]:
    """Draw a base optimizer with its arguments."""
    name = one_of(generator, names)
    rate = decimal(generator, -3, 0.3)
    if generator.random() < 0.3:
        rate = float(one_of(generator, [0.125, 0.5, 1.0, 2.0]))
    if name == "Ftrl":
        # It divides the difference of two roots by the rate. With a small rate, only
        # rounding errors of the processor's roots remain.
        rate = max(rate, 0.125)
    arguments = _arguments(generator, name)
    return {"name": name, "args": {"learning_rate": rate, **arguments}}


def _arguments(generator: Generator, name: str) -> dict[str, Json]:
    """Draw the arguments of an optimizer, without its rate."""
    arguments: dict[str, Json] = {}
    if name == "Momentum":
        arguments["use_nesterov"] = bool(generator.random() < 0.4)
        arguments["momentum"] = decimal(generator, -1, 0)
    if name in ("Adam", "AdamW") and generator.random() >= 0.3:
        arguments["beta1"] = one_of(generator, [0.9, 0.5, 0.0])
        arguments["beta2"] = one_of(generator, [0.999, 0.9, 0.5])
        arguments["epsilon"] = decimal(generator, -8, -1)
    if name == "AdamW":
        arguments["weight_decay"] = decimal(generator, -4, -1)
    if name == "Adagrad":
        arguments["initial_accumulator_value"] = decimal(generator, -3, 0)
    if name == "RMSProp":
        arguments["centered"] = bool(generator.random() < 0.4)
        arguments["decay"] = one_of(generator, [0.9, 0.5, 0.99])
        arguments["momentum"] = one_of(generator, [0.0, 0.5, 0.9])
        arguments["epsilon"] = decimal(generator, -10, -2)
    if name == "Ftrl":
        arguments["l1_regularization_strength"] = one_of(generator, [0.0, 0.01, 0.5])
        arguments["l2_regularization_strength"] = one_of(generator, [0.0, 0.02, 1.0])
        if generator.random() < 0.3:
            shrinkage = decimal(generator, -3, -1)
            arguments["l2_shrinkage_regularization_strength"] = shrinkage
        if generator.random() < 0.3:
            arguments["learning_rate_power"] = -decimal(generator, -1, 0)
    return arguments
