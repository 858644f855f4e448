"""Random cases of row clipping: axes, limits and layers."""

from __future__ import annotations

from typing import Any

from harness.oracle.drawing.numbers import (
    ORDINARY,
    Generator,
    Profile,
    decimal,
    one_of,
)
from harness.oracle.drawing.parts import Draw, choose_profile, optimizer

Json = dict[str, Any]

KINDS = {
    "tiny": "subnormal",
    "wide": "extreme",
    "special": "nonfinite",
    "half": "float16",
}


def variable_clipping(generator: Generator) -> tuple[str, Json]:
    """Draw a case with one or two layers, sometimes with a loss scale."""
    scaled = generator.random() < 0.1
    profile = ORDINARY if scaled else choose_profile(generator)
    if profile.name in KINDS:
        # Every backend rounds the roots of fewer than eight norms correctly. A wrong
        # rounding may change the rounding of w - c, and for a row far above the limit
        # nothing but that rounding remains.
        profile = profile._replace(size=7)
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(1, 5)))
    layers = 2 if generator.random() < 0.2 and not scaled else 1
    inputs: Json = {
        "optimizer": optimizer(generator),
        "layers": [
            {
                "max_norm": limit(generator, profile),
                "vars_to_clip_dims": vars_to_clip_dims(generator, draw),
            }
            for _ in range(layers)
        ],
        "variables": draw.variables(),
        "gradients": gradients.steps,
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }
    listed = [layer["vars_to_clip_dims"] for layer in inputs["layers"]]
    whole = any(
        sparse and 0 in dims.get(f"v{k}", [])
        for dims in listed
        for k, sparse in enumerate(draw.sparse)
    )
    form = "sparse" if gradients.sparse else "chained" if layers > 1 else "dense"
    form = "sparse_over_first_dim" if whole else form
    form = "sparse_duplicates" if gradients.duplicates else form
    if scaled:
        inputs["loss_scale"] = {
            "kind": "dynamic",
            "initial_loss_scale": decimal(generator, 0, 4),
            "increment_period": int(generator.integers(1, 4)),
            "multiplier": 2.0,
        }
        form = one_of(generator, ["clip_over_loss_scale", "loss_scale_over_clip"])
    return KINDS.get(profile.name, form), inputs


def limit(generator: Generator, profile: Profile) -> float:
    """Draw a norm of about the size of the numbers of a case. It may be subnormal."""
    if profile.name in ("tiny", "wide"):
        return max(decimal(generator, profile.lowest, profile.highest), 1e-45)
    if generator.random() < 0.3:
        return float(one_of(generator, [0.5, 1.0, 2.0, 3.0, 5.0]))
    return decimal(generator, -0.3, 1)


def vars_to_clip_dims(generator: Generator, draw: Draw) -> dict[str, list[int]]:
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
        backwards = generator.random() < 0.3
        dims_of[f"v{k}"] = [
            axis - len(shape) if backwards and axis else axis for axis in axes
        ]
    return dims_of
