"""Clipping rows in PyTorch.

Before each step, and outside of its time, its rows are made too long again. So they are
in the cache, as after the update of an optimizer.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from harness.tasks.overhead.torch_model import prepared
from harness.tasks.row_clipping_overhead.tables import (
    LIMIT,
    LONG,
    SHORT,
    SMALL,
    WIDTH,
    named_rows,
)
from harness.timing import Makers, Step
from lockstep.pytorch.variable_clipping import (
    RowLimit,
    VariableClippingOptimizer,
    clip_rows,
)


def makers(seed: int, device: str, part: str, vocabulary: str) -> Makers:
    """Return the builder of each step.

    ``part`` is ``clip``: ``ours``, ``forward``, ``dense`` and ``small``, which is ours
    on a small table. Or it is ``step``: ``ours`` and ``bare``, whole sparse steps.
    """
    torch.set_num_threads(1)
    parts = {"clip": clip_makers, "step": step_makers}
    return parts[part](Table(int(vocabulary), seed, device), seed)


class Table:
    """A table of short rows, and the rows of a step."""

    def __init__(self, vocabulary: int, seed: int, device: str) -> None:
        rows = torch.full((vocabulary, WIDTH), SHORT, device=device)
        self.weight = torch.nn.Parameter(rows)
        self.named = torch.tensor(named_rows(vocabulary, seed), device=device)
        self.long = torch.full((len(self.named), WIDTH), LONG, device=device)
        self.device = device

    @torch.no_grad()
    def lengthen(self) -> None:
        """Increase the norms of the named rows beyond the limit."""
        self.weight.index_copy_(0, self.named, self.long)

    def prepared(self, step: Step) -> Step:
        """Return a step, preceded by :meth:`lengthen`, which is not timed."""
        return prepared(self.lengthen, step, self.device)


def clip_makers(table: Table, seed: int) -> Makers:
    """Return builders of clippings: ``ours``, ``small``, ``forward``, ``dense``."""
    small = Table(SMALL, seed, table.device)
    return {
        "ours": partial(our_clip, table),
        "small": partial(our_clip, small),
        "forward": partial(forward_clip, table),
        "dense": partial(dense_clip, table),
    }


def our_clip(table: Table) -> Step:
    """Return the wrapper's clipping after a sparse step."""
    weight, limit = table.weight.detach(), RowLimit((1,), LIMIT)
    return table.prepared(lambda: clip_rows(weight, table.named, limit))


def forward_clip(table: Table) -> Step:
    """Return a lookup of the named rows in an ``Embedding`` with ``max_norm``."""
    embed = torch.nn.Embedding.from_pretrained(
        table.weight, freeze=False, max_norm=LIMIT
    )
    return table.prepared(lambda: embed(table.named))


def dense_clip(table: Table) -> Step:
    """Return a clipping of all rows by ``renorm_``."""
    weight = table.weight.detach()
    return table.prepared(lambda: weight.renorm_(2, 0, LIMIT))


def step_makers(table: Table, seed: int) -> Makers:
    """Return the builder of each whole sparse step: ``ours``, ``bare``."""
    rows = torch.full_like(table.long, 0.01)
    size = table.weight.shape
    table.weight.grad = torch.sparse_coo_tensor(
        table.named[None], rows, size, check_invariants=True
    )
    return {
        "ours": lambda: table.prepared(wrapped(table.weight).step),
        "bare": lambda: table.prepared(torch.optim.SGD([table.weight], lr=0.1).step),
    }


def wrapped(weight: Tensor) -> VariableClippingOptimizer:
    """Return our wrapper around SGD, which clips the rows of ``weight``."""
    base = torch.optim.SGD([weight], lr=0.1)
    return VariableClippingOptimizer(base, {weight: [1]}, LIMIT)
