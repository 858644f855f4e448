"""Random cases of each family that TensorFlow 1.15 itself can run.

A function draws the kind and the inputs of a case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from harness.oracle.random_values import (
    ORDINARY,
    Draw,
    Generator,
    Gradients,
    Profile,
    decimal,
    draw_optimizer,
    draw_profile,
    one_of,
)

Json = dict[str, Any]
KindAndInputs = tuple[str, Json]

CHAINS = {
    "chain_clip_over_multitask": (
        "VariableClippingOptimizer(MultitaskOptimizerWrapper(optimizer))"
    ),
    "chain_multitask_over_clip": (
        "MultitaskOptimizerWrapper(VariableClippingOptimizer(optimizer))"
    ),
    "side_effect_on_wrapped": (
        "MultitaskOptimizerWrapper(optimizer) built, then 'optimizer' itself applied"
    ),
}
WORKERS = {1: "one_worker", 2: "two_workers", 4: "four_workers"}


def trained(generator: Generator, draw: Draw, gradients: Gradients) -> Json:
    """Draw the rest of what every training has."""
    return {
        "optimizer": draw_optimizer(generator),
        "variables": draw.variables(),
        "gradients": gradients.steps,
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }


def kind_of(profile: Profile, ordinary: str, **names: str) -> str:
    """Return the kind: the profile's name, or what the family calls it."""
    return ordinary if profile is ORDINARY else names.get(profile.name, profile.name)


def base_optimizers(generator: Generator) -> KindAndInputs:
    """Draw a case of a bare optimizer."""
    profile = draw_profile(generator)
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(1, 6)))
    kind = kind_of(profile, "sparse" if gradients.sparse else "dense")
    return kind, trained(generator, draw, gradients)


def multitask(generator: Generator) -> KindAndInputs:
    """Draw a case of the multitask wrapper; about one in three is a chain."""
    chain = ""
    if generator.random() >= 0.7:
        chain = one_of(generator, list(CHAINS))
    profile = ORDINARY if chain else draw_profile(generator)
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(2, 6)))
    form = chain or ("sparse" if gradients.sparse else "zero_patterns")
    inputs = trained(generator, draw, gradients)
    inputs["wrapper"] = CHAINS.get(chain, "MultitaskOptimizerWrapper")
    if chain.startswith("chain"):
        inputs["vars_to_clip_dims"] = clip_dims(generator, draw)
        inputs["max_norm"] = decimal(generator, -0.5, 0.7)
    return kind_of(profile, form, subnormal="denormal"), inputs


def multitask_clip(generator: Generator) -> KindAndInputs:
    """Draw a case of the clipping function; one in four applies the gradients, too."""
    if generator.random() < 0.25:
        return clip_then_apply(generator)
    profile = draw_profile(generator)
    draw = Draw(generator, profile)
    # Without variables, the shape of an empty gradient is unknown.
    draw.shapes = [shape for shape in draw.shapes if 0 not in shape] or [(2,)]
    draw.sparse = [False] * len(draw.shapes)
    gradients = draw.gradients(1, absent=0.2)
    lowest, highest = -1.0, 1.5
    if profile.name in ("subnormal", "extreme"):
        lowest, highest = profile.lowest, profile.highest
    form = "with_none" if gradients.absent else "dense"
    return kind_of(profile, form, subnormal="denormal"), {
        "dtype": profile.dtype,
        "gradients": gradients.steps[0],
        "clip_norm": decimal(generator, lowest, highest),
    }


def clip_then_apply(generator: Generator) -> KindAndInputs:
    """Draw a case of the clipping function before the multitask wrapper."""
    draw = Draw(generator, ORDINARY)
    draw.sparse = [False] * len(draw.shapes)
    return "clip_then_apply", {
        "wrapper": "MultitaskOptimizerWrapper",
        "optimizer": draw_optimizer(generator),
        "variables": draw.variables(),
        "gradients": draw.gradients(int(generator.integers(2, 5))).steps,
        "clip_norm": decimal(generator, -1, 1.5),
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }


def variable_clipping(generator: Generator) -> KindAndInputs:
    """Draw a case with one or two layers, sometimes with a loss scale."""
    scaled = generator.random() < 0.1
    profile = ORDINARY if scaled else draw_profile(generator)
    if profile is not ORDINARY:
        # Every backend rounds the roots of fewer than eight norms correctly. A wrong
        # rounding may change the rounding of w - c, and for a row far above the limit
        # nothing but that rounding remains.
        profile = profile._replace(size=7)
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(1, 5)))
    count = 2 if generator.random() < 0.2 and not scaled else 1
    optimizer = draw_optimizer(generator)
    layers = [
        {
            "max_norm": limit(generator, profile),
            "vars_to_clip_dims": clip_dims(generator, draw),
        }
        for _ in range(count)
    ]
    inputs: Json = {
        "optimizer": optimizer,
        "layers": layers,
        "variables": draw.variables(),
        "gradients": gradients.steps,
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }
    if scaled:
        inputs["loss_scale"] = {
            "kind": "dynamic",
            "initial_loss_scale": decimal(generator, 0, 4),
            "increment_period": int(generator.integers(1, 4)),
            "multiplier": 2.0,
        }
        kinds = ["clip_over_loss_scale", "loss_scale_over_clip"]
        return one_of(generator, kinds), inputs
    return kind_of(profile, clipped_form(gradients, draw, layers)), inputs


def clipped_form(gradients: Gradients, draw: Draw, layers: list[Json]) -> str:
    """Return the kind of a case of row clipping with ordinary numbers."""
    if gradients.duplicates:
        return "sparse_duplicates"
    for layer in layers:
        for k, sparse in enumerate(draw.sparse):
            if sparse and 0 in layer["vars_to_clip_dims"].get(f"v{k}", []):
                return "sparse_over_first_dim"
    if gradients.sparse:
        return "sparse"
    return "chained" if len(layers) > 1 else "dense"


def limit(generator: Generator, profile: Profile) -> float:
    """Draw a norm of about the size of the numbers of a case. It may be subnormal."""
    if profile.name in ("subnormal", "extreme"):
        return max(decimal(generator, profile.lowest, profile.highest), 1e-45)
    if generator.random() < 0.3:
        return float(one_of(generator, [0.5, 1.0, 2.0, 3.0, 5.0]))
    return decimal(generator, -0.3, 1)


def clip_dims(generator: Generator, draw: Draw) -> dict[str, list[int]]:
    """Draw distinct axes, counted from either end, for most variables.

    For sparse gradients, dimension 0 is never drawn as a negative axis, because that
    is a kind of its own.
    """
    dims_of = {}
    for k, (shape, sparse) in enumerate(zip(draw.shapes, draw.sparse, strict=True)):
        if generator.random() < 0.15:
            continue
        axes = [axis for axis in range(len(shape)) if generator.random() < 0.5]
        if sparse and generator.random() < 0.7:
            axes = list(range(1, len(shape)))
        if generator.random() < 0.3:
            axes = [axis - len(shape) if axis else 0 for axis in axes]
        dims_of[f"v{k}"] = axes
    return dims_of


def loss_scale_fixed(generator: Generator) -> KindAndInputs:
    """Draw a case of a fixed loss scale."""
    value = one_of(generator, [1.0, 2.0, 3.7, 1024.0, 1e6, decimal(generator, 0, 12)])
    scale = {"kind": "fixed", "loss_scale_value": value}
    names = {
        "subnormal": "underflow",
        "extreme": "overflow_applied",
        "nonfinite": "nonfinite_applied",
    }
    return scaled(generator, scale, names, ("dense", "sparse"))


def loss_scale_dynamic(generator: Generator) -> KindAndInputs:
    """Draw a case of a dynamic loss scale; one in three only updates the scale."""
    scale = {
        "kind": "dynamic",
        "initial_loss_scale": decimal(generator, 0, 6),
        "increment_period": int(generator.integers(1, 5)),
        "multiplier": float(one_of(generator, [2.0, 1.5, 3.0, 4.0, 1000.0])),
    }
    if generator.random() < 0.35:
        entries = ["inf", "-inf", "nan", 0.0, 1.0, 1e-45, 3.4e38, -2.0]
        weights = [0.12, 0.05, 0.08, 0.1, 0.4, 0.05, 0.1, 0.1]
        count = int(generator.integers(3, 30))
        chosen = generator.choice(len(entries), count, p=weights).tolist()
        if generator.random() < 0.2:
            scale["initial_loss_scale"] = decimal(generator, 30, 38.4)
        pattern = [entries[position] for position in chosen]
        moved = {"loss_scale": scale, "second_gradient_entry": pattern}
        return "random_pattern", {"mode": "update_only", **moved}
    names = {
        "subnormal": "underflow",
        "extreme": "scaled_gradient_overflows",
        "nonfinite": "overflow_skip",
    }
    return scaled(generator, scale, names, ("overflow_skip", "overflow_skip_sparse"))


def scaled(
    generator: Generator, scale: Json, names: dict[str, str], forms: tuple[str, str]
) -> KindAndInputs:
    """Draw a training with a loss scale: from a loss, or with given gradients.

    Args:
        names: the kinds of cases with critical numbers, by profile.
        forms: the kinds of the others, if all gradients are dense or some are sparse.
    """
    profile = draw_profile(generator)
    as_pairs = profile.dtype == "float16" or generator.random() < 0.3
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(2, 6)))
    form = "absent" if gradients.absent else forms[gradients.sparse]
    kind = names.get(profile.name, "apply_only" if as_pairs else form)
    inputs = trained(generator, draw, gradients)
    inputs["mode"] = "apply_only" if as_pairs else "minimize"
    inputs["loss_scale"] = scale
    return kind, inputs


def agn(generator: Generator) -> KindAndInputs:
    """Draw a case of one, two or four workers that run their steps in any order."""
    profile = draw_profile(generator)
    draw = Draw(generator, profile)
    workers = one_of(generator, list(WORKERS))
    period = int(generator.integers(1, 5))
    count = int(generator.integers(2, 9))
    gradients = draw.gradients(count)
    order = generator.integers(workers, size=count).tolist()
    together = zip(order, gradients.steps, strict=True)
    form = "absent" if gradients.absent else WORKERS[workers]
    form = "sparse" if gradients.sparse else form
    simple = ("GradientDescent", "Momentum", "Adam", "Adagrad", "RMSProp")
    return kind_of(profile, form), {
        "optimizer": draw_optimizer(generator, simple),
        "num_workers": workers,
        "communication_period": period,
        "variables": draw.variables(),
        "events": [{"worker": w, "gradients": g} for w, g in together],
    }


DRAWN: Mapping[str, tuple[str, Callable[[Generator], KindAndInputs]]] = {
    "agn": ("tf.contrib.opt.AGNOptimizer", agn),
    "base_optimizers": ("tf.train optimizers", base_optimizers),
    "loss_scale_dynamic": ("tf.train.experimental", loss_scale_dynamic),
    "loss_scale_fixed": ("tf.train.experimental", loss_scale_fixed),
    "multitask": ("tf.contrib.opt.MultitaskOptimizerWrapper", multitask),
    "multitask_clip": (
        "tf.contrib.opt.clip_gradients_by_global_norm",
        multitask_clip,
    ),
    "variable_clipping": (
        "tf.contrib.opt.VariableClippingOptimizer",
        variable_clipping,
    ),
}
"""Family -> the name of the original, and the function that draws a case."""


def draw_cases(family: str, count: int, seed: int) -> Iterator[Json]:
    """Yield ``count`` cases, each determined by seed, family and number."""
    component, draw = DRAWN[family]
    for number in range(count):
        place = list(DRAWN).index(family)
        kind, inputs = draw(np.random.default_rng([seed, place, number]))
        yield {
            "family": family,
            "id": f"{family}-s{seed}-{number:04d}",
            "kind": kind,
            "source": f"{component} (live tensorflow 1.15.5)",
            "inputs": inputs,
        }
