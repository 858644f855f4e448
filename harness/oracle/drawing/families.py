"""One function per family: the kind and the inputs of a random case."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from harness.oracle.drawing.numbers import (
    HALF,
    ORDINARY,
    Generator,
    Profile,
    decimal,
    one_of,
)
from harness.oracle.drawing.parts import Draw, Gradients, choose_profile, optimizer
from harness.oracle.drawing.rows import variable_clipping, vars_to_clip_dims

Json = dict[str, Any]
KindAndInputs = tuple[str, Json]

SIMPLE = ("GradientDescent", "Momentum", "Adam", "Adagrad", "RMSProp")
WRAPPERS = {
    "zero_patterns": "MultitaskOptimizerWrapper",
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


def named(profile: Profile, kinds: Mapping[str, str], gradients: Gradients) -> str:
    """Return the kind: of the profile if ``kinds`` has it, else dense or sparse."""
    dense = kinds.get("dense", "dense")
    form = kinds.get("sparse", "sparse") if gradients.sparse else dense
    return kinds.get(profile.name, form)


def base_optimizers(generator: Generator) -> KindAndInputs:
    """Draw a case of a bare optimizer."""
    profile = choose_profile(generator)
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(1, 6)))
    kinds = {
        "tiny": "subnormal",
        "wide": "extreme",
        "special": "nonfinite",
        "half": "float16",
    }
    return named(profile, kinds, gradients), {
        "optimizer": optimizer(generator),
        "variables": draw.variables(),
        "gradients": gradients.steps,
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }


def multitask(generator: Generator) -> KindAndInputs:
    """Draw a case of the multitask wrapper; about one in three is a chain."""
    share = generator.random()
    others = list(WRAPPERS)[1:]
    wrapper = "zero_patterns" if share < 0.7 else str(one_of(generator, others))
    profile = choose_profile(generator) if share < 0.7 else ORDINARY
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(2, 6)))
    kinds = {
        "tiny": "denormal",
        "wide": "extreme",
        "special": "nonfinite",
        "half": "float16",
        "dense": "zero_patterns",
    }
    inputs: Json = {
        "wrapper": WRAPPERS[wrapper],
        "optimizer": optimizer(generator),
        "variables": draw.variables(),
        "gradients": gradients.steps,
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }
    if wrapper.startswith("chain"):
        inputs["vars_to_clip_dims"] = vars_to_clip_dims(generator, draw)
        inputs["max_norm"] = decimal(generator, -0.5, 0.7)
    chained = wrapper != "zero_patterns"
    return wrapper if chained else named(profile, kinds, gradients), inputs


def multitask_clip(generator: Generator) -> KindAndInputs:
    """Draw a case of the clipping function; one in four applies the gradients, too."""
    if generator.random() < 0.25:
        return _clip_then_apply(generator)
    profile = choose_profile(generator)
    draw = Draw(generator, profile)
    # Without variables, the shape of an empty gradient is unknown.
    draw.shapes = [shape for shape in draw.shapes if 0 not in shape] or [(2,)]
    draw.sparse = [False] * len(draw.shapes)
    gradients = draw.gradients(1, absent=0.2)
    kinds = {
        "tiny": "denormal",
        "wide": "extreme",
        "special": "nonfinite",
        "half": "float16",
        "dense": "with_none" if gradients.absent else "dense",
    }
    extent = (profile.lowest, profile.highest)
    near = extent if profile.name in ("tiny", "wide") else (-1.0, 1.5)
    return named(profile, kinds, gradients), {
        "dtype": profile.dtype,
        "gradients": gradients.steps[0],
        "clip_norm": decimal(generator, *near),
    }


def _clip_then_apply(generator: Generator) -> KindAndInputs:
    draw = Draw(generator, ORDINARY)
    draw.sparse = [False] * len(draw.shapes)
    return "clip_then_apply", {
        "wrapper": "MultitaskOptimizerWrapper",
        "optimizer": optimizer(generator),
        "variables": draw.variables(),
        "gradients": draw.gradients(int(generator.integers(2, 5))).steps,
        "clip_norm": decimal(generator, -1, 1.5),
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }


def loss_scale_fixed(generator: Generator) -> KindAndInputs:
    """Draw a case of a fixed loss scale."""
    value = one_of(generator, [1.0, 2.0, 3.7, 1024.0, 1e6, decimal(generator, 0, 12)])
    kinds = {
        "tiny": "underflow",
        "wide": "overflow_applied",
        "special": "nonfinite_applied",
    }
    scale = {"kind": "fixed", "loss_scale_value": value}
    return _scaled(generator, scale, kinds)


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
    kinds = {
        "tiny": "underflow",
        "wide": "scaled_gradient_overflows",
        "dense": "overflow_skip",
        "special": "overflow_skip",
        "sparse": "overflow_skip_sparse",
    }
    return _scaled(generator, scale, kinds)


def _scaled(
    generator: Generator, scale: Json, kinds: Mapping[str, str]
) -> KindAndInputs:
    """Draw a training with a loss scale: from a loss, or with given gradients."""
    profile = choose_profile(generator)
    as_pairs = profile.dtype == HALF.dtype or generator.random() < 0.3
    draw = Draw(generator, profile)
    gradients = draw.gradients(int(generator.integers(2, 6)))
    kind = named(profile, kinds, gradients)
    if profile.name not in kinds:
        kind = "apply_only" if as_pairs else "absent" if gradients.absent else kind
    return kind, {
        "mode": "apply_only" if as_pairs else "minimize",
        "optimizer": optimizer(generator),
        "loss_scale": scale,
        "variables": draw.variables(),
        "gradients": gradients.steps,
        "variable_kind": one_of(generator, ["ref", "resource"]),
    }


def agn(generator: Generator) -> KindAndInputs:
    """Draw a case of one, two or four workers that run their steps in any order."""
    profile = choose_profile(generator)
    draw = Draw(generator, profile)
    workers = int(one_of(generator, [1, 2, 4]))
    period = int(generator.integers(1, 5))
    count = int(generator.integers(2, 9))
    gradients = draw.gradients(count)
    order = generator.integers(workers, size=count).tolist()
    together = zip(order, gradients.steps, strict=True)
    kinds = {
        "tiny": "subnormal",
        "wide": "extreme",
        "special": "nonfinite",
        "half": "float16",
        "dense": "absent" if gradients.absent else WORKERS[workers],
    }
    return named(profile, kinds, gradients), {
        "optimizer": optimizer(generator, SIMPLE),
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
