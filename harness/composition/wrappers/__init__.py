"""One module per wrapper: its layers, its stacks and how it nests.

Each has ``LAYERS``; ``TITLES``, the layer that stands for the wrapper in the table of
nestings; ``STACKS`` and ``FEW_STACKS``; and ``NESTINGS``. What concerns two wrappers is
in the module of the one that was added later, so a new wrapper changes no other module.
"""

from __future__ import annotations

from collections.abc import Mapping

from harness.composition.layers import BASES, Layer, Nesting
from harness.discovery import modules_in

__all__ = ["FEW_STACKS", "LAYERS", "NESTINGS", "STACKS", "TITLES"]

MODULES = modules_in(
    __name__, ("multitask", "row_clipping", "loss_scaling", "masters", "agn")
)
"""The modules in the order of pages; others follow, sorted by name."""

LAYERS: Mapping[str, Layer] = {k: v for m in MODULES for k, v in m.LAYERS.items()}

TITLES: Mapping[str, str] = {k: v for m in MODULES for k, v in m.TITLES.items()}
"""Layer -> name of its wrapper in the table of nestings."""

NESTINGS: Mapping[tuple[str, str], Nesting] = {
    pair: nesting for module in MODULES for pair, nesting in module.NESTINGS.items()
}
"""(outer, inner) -> result. A fixed scale behaves like a dynamic one."""

STACKS: tuple[str, ...] = (*BASES, *(s for m in MODULES for s in m.STACKS))
"""The stacks whose state must survive a checkpoint, on every backend.

Each is a run of 50 steps that is saved at every step.
"""

FEW_STACKS: tuple[str, ...] = (
    "GradientDescent",
    *(stack for module in MODULES for stack in module.FEW_STACKS),
)
"""A subset that contains every layer and base optimizer at least once."""
