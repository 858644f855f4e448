"""The optimizer of a worker in stacks: accumulated gradient normalization."""

from __future__ import annotations

from typing import Any

from harness.composition.layers import EVERYWHERE, RIGHT, Layer, Model, Nesting
from harness.parity.drivers.protocol import Driver

__all__ = ["FEW_STACKS", "LAYERS", "NESTINGS", "ROUND", "STACKS", "TITLES"]

ROUND = 3
"""Number of local steps between two pushes of a worker."""


def _rounds(**options: Any) -> Layer:
    def wrap(driver: Driver, opt: Any, model: Model) -> Any:
        assert model.worker is not None
        getter = model.worker.getter
        return driver.names.AGNOptimizer(opt, 1, getter, ROUND, **options)

    return Layer("AGNOptimizer", wrap)


LAYERS = {"agn": _rounds(), "agn-delta": _rounds(commit="delta")}
TITLES = {"agn": "AGN"}
STACKS = (
    "agn Momentum",
    "agn Adam",
    "agn NovoGrad",
    "agn-delta Adam",
    "agn rows Momentum",
    "dynamic agn Adam",
    "agn multitask rows NovoGrad",
    "clipped agn rows RMSProp",
)
FEW_STACKS = ("agn Momentum", "agn-delta Adam")
SHARED = Nesting(refused=EVERYWHERE, sentence="shares what it trains")
NESTINGS = {
    ("agn", "agn"): Nesting(refused=EVERYWHERE, sentence="shared already"),
    ("agn", "multitask"): Nesting("zeros go round"),
    ("agn", "rows"): RIGHT,
    ("agn", "dynamic"): Nesting(refused=EVERYWHERE, sentence="the other way round"),
    ("agn", "masters-dynamic"): SHARED,
    ("multitask", "agn"): Nesting(
        refused=frozenset({"tf graph"}), sentence="the other way round"
    ),
    ("rows", "agn"): Nesting(
        refused=EVERYWHERE, sentence="put the row clipping inside"
    ),
    ("dynamic", "agn"): RIGHT,
    ("masters-dynamic", "agn"): SHARED,
}
