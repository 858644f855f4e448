"""One module per family, which replays the family's cases.

Each module has ``KINDS``, the kinds that it can replay; ``replay(case, driver)``, which
yields the state after each step as a flat mapping from the name of a quantity to an
array; and ``expectations(case)``, which yields the recorded states in the same form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from harness.parity.cases import Case
from harness.parity.drivers.protocol import Driver
from harness.parity.families import multitask
from harness.parity.families.clipping import (
    clip_by_global_norm,
    larc,
    multitask_clip,
    variable_clipping,
)
from harness.parity.families.masters import mixed_precision_wrapper
from harness.parity.families.optimizers import base_optimizers, novograd
from harness.parity.families.scaling import auto_loss_scaler, loss_scale
from harness.parity.families.schedules import lr_policies
from harness.parity.families.step import optimize_loss, regularization_loss
from harness.parity.families.workers import agn
from lockstep.interface import Array

__all__ = ["BY_FAMILY", "Family"]


class Family(Protocol):
    """The interface of the modules in this folder."""

    KINDS: frozenset[str]

    def replay(self, case: Case, driver: Driver) -> Iterator[Mapping[str, Array]]:
        """Yield the backend's results, state by state."""
        ...

    def expectations(self, case: Case) -> Iterator[Mapping[str, Array]]:
        """Yield the recorded states."""
        ...


BY_FAMILY: Mapping[str, Family] = {
    "base_optimizers": base_optimizers,
    "multitask": multitask,
    "multitask_clip": multitask_clip,
    "lr_policies": lr_policies,
    "variable_clipping": variable_clipping,
    "loss_scale_fixed": loss_scale,
    "loss_scale_dynamic": loss_scale,
    "auto_loss_scaler_backoff": auto_loss_scaler,
    "auto_loss_scaler_logmax": auto_loss_scaler,
    "mixed_precision_wrapper": mixed_precision_wrapper,
    "optimize_loss": optimize_loss,
    "agn": agn,
    "larc": larc,
    "clip_by_global_norm": clip_by_global_norm,
    "regularization_loss": regularization_loss,
    "novograd": novograd,
}
