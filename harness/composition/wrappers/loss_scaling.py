"""The loss-scale optimizer in stacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from harness.composition.layers import (
    EVERYWHERE,
    RIGHT,
    Layer,
    Model,
    Nesting,
    dynamic_scale,
)
from harness.parity.drivers.protocol import Driver

__all__ = ["FEW_STACKS", "LAYERS", "NESTINGS", "STACKS", "TITLES"]


def _scaled(text: str, loss_scale: Callable[[Any], Any], **options: Any) -> Layer:
    def wrap(driver: Driver, opt: Any, model: Model) -> Any:
        names = driver.names
        scale = loss_scale(names)
        return names.MixedPrecisionLossScaleOptimizer(opt, scale, **options)

    return Layer("MixedPrecisionLossScaleOptimizer", wrap, text)


def _patient(names: Any) -> Any:
    """Return a scale with two more counters: it ignores the first of two overflows."""
    return names.DynamicLossScale(4.0, 2, hysteresis=2)


LAYERS = {
    "fixed": _scaled("a fixed loss scale", lambda names: 8.0),
    "dynamic": _scaled("a dynamic loss scale", dynamic_scale),
    "patient": _scaled("a dynamic loss scale with hysteresis", _patient),
    "clipped": _scaled(
        "a dynamic loss scale with a clip", dynamic_scale, clip_norm=1.0
    ),
}
TITLES = {"dynamic": "Loss scaling"}
STACKS = (
    "fixed Momentum",
    "dynamic Adam",
    "patient Momentum",
    "rows dynamic Adagrad",
    "dynamic rows NovoGrad",
    "clipped multitask rows Adam",
    "rows multitask patient Momentum",
)
FEW_STACKS = (
    "fixed Momentum",
    "rows dynamic Adagrad",
    "clipped multitask rows Adam",
    "rows multitask patient Momentum",
)
NESTINGS = {
    ("dynamic", "dynamic"): Nesting(
        refused=EVERYWHERE, sentence="whose loss is not scaled yet"
    ),
    ("dynamic", "multitask"): Nesting("idle counts"),
    ("dynamic", "rows"): RIGHT,
    ("multitask", "dynamic"): RIGHT,
    ("rows", "dynamic"): Nesting("skip clips"),
}
