"""Float32 masters in stacks."""

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


def _masters(loss_scale: Callable[[Any], Any], text: str = "", **options: Any) -> Layer:
    def wrap(driver: Driver, opt: Any, model: Model) -> Any:
        names = driver.names
        return names.MixedPrecisionOptimizerWrapper(opt, loss_scale(names), **options)

    return Layer("MixedPrecisionOptimizerWrapper", wrap, text)


def _backoff(names: Any) -> Any:
    params = {"scale_max": 16.0, "scale_min": 1.0, "step_window": 2}
    return names.AutomaticLossScaler("Backoff", params)


def _logmax(names: Any) -> Any:
    return names.AutomaticLossScaler("LogMax", {"scale_max": 64.0})


LAYERS = {
    "masters": _masters(lambda names: None),
    "masters-fixed": _masters(lambda names: 8.0),
    "masters-dynamic": _masters(dynamic_scale, "masters with a dynamic scale"),
    "masters-backoff": _masters(_backoff, "masters with Backoff"),
    "masters-logmax": _masters(
        _logmax, "masters with LogMax and a clip", clip_norm=1.0
    ),
}
TITLES = {"masters-dynamic": "Masters"}
STACKS = (
    "masters-dynamic Adam",
    "masters-backoff Adam",
    "masters-logmax Momentum",
    "masters-dynamic multitask Adam",
    "masters-backoff rows Ftrl",
    "masters-dynamic multitask NovoGrad",
    "masters-logmax multitask rows RMSProp",
    "masters-dynamic rows multitask Adagrad",
)
FEW_STACKS = (
    "masters-backoff rows Ftrl",
    "masters-dynamic multitask NovoGrad",
    "masters-logmax multitask rows RMSProp",
)
SCALED_TWICE = Nesting(refused=EVERYWHERE, sentence="whose loss is not scaled yet")
NESTINGS = {
    ("masters-dynamic", "masters-dynamic"): SCALED_TWICE,
    ("masters-dynamic", "multitask"): Nesting("idle counts"),
    ("masters-dynamic", "rows"): RIGHT,
    ("masters-dynamic", "dynamic"): SCALED_TWICE,
    ("multitask", "masters-dynamic"): Nesting(
        refused=frozenset({"pytorch"}), sentence="put the wrapper inside"
    ),
    ("rows", "masters-dynamic"): Nesting(
        refused=EVERYWHERE, sentence="put the row clipping inside"
    ),
    ("dynamic", "masters-dynamic"): SCALED_TWICE,
}
