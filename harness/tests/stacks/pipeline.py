"""The pipeline in plain code: what a stack of wrappers must compute, by stages."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from harness.tests.stacks.stacks import (
    BASES,
    MAX_NORM,
    ROUND,
    has_masters,
    notes_of,
    skips,
)
from lockstep import reference
from lockstep.interface import Array
from lockstep.reference import Variable
from lockstep.reference.optimizers import RuleOptimizer
from lockstep.reference.variable_clipping import clip_rows

PERIOD = 2
"""Period of the dynamic scale in :func:`harness.tests.stacks.stacks.dynamic`."""


class Pipeline:
    """Variables, a bare optimizer of the reference, and the stages around it.

    Args:
        stack: as in :func:`harness.tests.stacks.stacks.build`.
        values: initial values. The rows of the first may be clipped.

    Attributes:
        scale: the loss scale.
    """

    def __init__(self, stack: str, values: Sequence[Array]) -> None:
        *self.layers, base = stack.split()
        self.notes: Collection[str] = notes_of(stack)
        self.dtypes = [value.dtype for value in values]
        wide = np.float32 if has_masters(stack) else None
        self.variables = [Variable(str(k), v, wide) for k, v in enumerate(values)]
        self.skips = skips(stack)
        optimizer = getattr(reference, f"{base}Optimizer")(**BASES[base])
        assert isinstance(optimizer, RuleOptimizer)
        self.base = optimizer
        self.scale, self.good_steps = np.float32(4.0), 0
        # The variables that workers would share, and this worker's gathered gradients.
        self.shared = [Variable(f"shared {v.name}", v.value) for v in self.variables]
        self.gathered = [np.zeros_like(v.value) for v in self.variables]
        self.local_step = 0

    def advance(self, arrays: Sequence[Array | None]) -> None:
        """Run a step with unscaled gradients."""
        gradients = [self.in_float32(gradient) for gradient in arrays]
        left = self.zero_filter(gradients)
        counts = left if "idle counts" not in self.notes else gradients
        finite = all(g is None or bool(np.isfinite(g).all()) for g in counts)
        if self.skips and any(g is not None for g in counts):
            self.move_scale(finite)
        applied = finite or not self.skips
        round_gradients = gradients if "zeros go round" in self.notes else left
        if applied:
            self.update(self.variables, left)
        if applied or "skip clips" in self.notes:
            self.row_clip(
                self.variables, gradients if "zero clips" in self.notes else left
            )
        if (
            applied
            and "agn" in self.layers
            and any(g is not None for g in round_gradients)
        ):
            self.go_round(round_gradients)

    def update(
        self, variables: Sequence[Variable], gradients: Sequence[Array | None]
    ) -> None:
        """Run a step of the bare optimizer, unless all gradients are None."""
        if any(g is not None for g in gradients):
            self.base.apply_gradients(zip(gradients, variables, strict=True))

    def go_round(self, arrays: Sequence[Array | None]) -> None:
        """Gather gradients. At the end of a round update the shared variables; pull."""
        for k, gradient in enumerate(arrays):
            if gradient is not None:
                self.gathered[k] = self.gathered[k] + gradient
        self.local_step += 1
        if self.local_step % ROUND:
            return
        means = [
            None if g is None else gathered / np.float32(ROUND)
            for g, gathered in zip(arrays, self.gathered, strict=True)
        ]
        left = self.zero_filter(means) if "zeros go round" in self.notes else means
        self.update(self.shared, left)
        self.row_clip(self.shared, means if "zero clips" in self.notes else left)
        for k, mean in enumerate(means):
            if mean is not None:
                self.variables[k].value = self.shared[k].value
                self.gathered[k] = np.zeros_like(mean)

    def in_float32(self, gradient: Array | None) -> Array | None:
        """Return a gradient in the dtype that the base optimizer needs."""
        if gradient is None or not any("masters" in layer for layer in self.layers):
            return gradient
        return gradient.astype(np.float32)

    def zero_filter(self, gradients: Sequence[Array | None]) -> list[Array | None]:
        """Replace gradients without a nonzero element by None."""
        if "multitask" not in self.layers:
            return list(gradients)
        return [None if g is None or not g.any() else g for g in gradients]

    def move_scale(self, finite: bool) -> None:
        """Halve the scale, or double it at every second finite step."""
        self.good_steps = self.good_steps + 1 if finite else 0
        if not finite:
            self.scale = max(self.scale / np.float32(2), np.float32(1))
        elif self.good_steps == PERIOD:
            self.scale, self.good_steps = self.scale * np.float32(2), 0

    def row_clip(
        self, variables: Sequence[Variable], gradients: Sequence[Array | None]
    ) -> None:
        """Clip the rows of the first variable that are too long."""
        if "rows" in self.layers and gradients[0] is not None:
            table = variables[0]
            table.value, _ = clip_rows(table.value, (1,), MAX_NORM)

    def values(self) -> list[Array]:
        """Return the variables in the dtypes of the model."""
        pairs = zip(self.variables, self.dtypes, strict=True)
        return [variable.value.astype(dtype) for variable, dtype in pairs]

    def slots(self) -> list[Array | None]:
        """Return the momentum of each variable."""
        return [self.base.get_slot(v, "momentum") for v in self.variables]
