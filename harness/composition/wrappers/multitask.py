"""The multitask wrapper in stacks."""

from __future__ import annotations

from typing import Any

from harness.composition.layers import RIGHT, Layer, Model
from harness.parity.drivers.protocol import Driver

__all__ = ["FEW_STACKS", "LAYERS", "NESTINGS", "STACKS", "TITLES"]


def _multitask(driver: Driver, opt: Any, model: Model) -> Any:
    return driver.names.MultitaskOptimizerWrapper(opt)


LAYERS = {"multitask": Layer("MultitaskOptimizerWrapper", _multitask)}
TITLES = {"multitask": "Multitask"}
STACKS = ("multitask Adam",)
FEW_STACKS = ()
NESTINGS = {("multitask", "multitask"): RIGHT}
