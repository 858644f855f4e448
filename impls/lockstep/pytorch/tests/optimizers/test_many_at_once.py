"""An optimizer updates many tensors at once, each as if it were alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from lockstep.pytorch import FtrlOptimizer, NovoGrad
from lockstep.pytorch.optimizers.rule_optimizer import RuleOptimizer
from lockstep.pytorch.optimizers.rules import in_pieces
from lockstep.pytorch.tests.subjects import OWN

SHAPES = [(3,), (), (4, 5), (3,), (0,), (130, 70), (4, 5)]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
RULES: dict[str, tuple[Callable[[Any], Any], Sequence[torch.dtype]]] = {
    **{name: (make, DTYPES) for name, make in OWN.items()},
    "NovoGrad with averages": (
        partial(NovoGrad, learning_rate=0.1, weight_decay=0.1, grad_averaging=True),
        DTYPES,
    ),
    "Ftrl with shrinkage": (
        partial(
            FtrlOptimizer,
            learning_rate=0.1,
            l2_shrinkage_regularization_strength=0.1,
        ),
        DTYPES,
    ),
}


def drawn(seed: int, dtypes: Sequence[torch.dtype]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    pairs = product(SHAPES, dtypes)
    return [torch.randn(shape, generator=generator).to(dtype) for shape, dtype in pairs]


def as_sparse(gradient: Tensor) -> Tensor:
    """Return twice a gradient: each of its rows is there two times."""
    indices = torch.arange(len(gradient)).repeat(1, 2)
    return torch.sparse_coo_tensor(
        indices, torch.cat([gradient, gradient]), gradient.shape, check_invariants=True
    )


def trained(
    make: Callable[[Any], Any], dtypes: Sequence[torch.dtype], one_by_one: bool
) -> list[Tensor]:
    """Train weights, in one optimizer or in one each; return all state."""
    parameters = [Parameter(w) for w in drawn(0, dtypes)]
    parts = [[p] for p in parameters] if one_by_one else [parameters]
    optimizers = [make(part) for part in parts]
    for seed in range(1, 4):
        gradients = zip(parameters, drawn(seed, dtypes), strict=True)
        for k, (parameter, gradient) in enumerate(gradients):
            parameter.grad = gradient
            if gradient.dim() == 2 and k % 3 == seed:
                parameter.grad = as_sparse(gradient)
        for optimizer in optimizers:
            optimizer.step()
    slots = [slots for o in optimizers for slots in o.state.values()]
    return [*parameters, *(value for slot in slots for value in slot.values())]


@pytest.mark.parametrize("run", [1, 64, 1 << 18])
@pytest.mark.parametrize(("make", "dtypes"), RULES.values(), ids=RULES)
def test_together_they_go_where_they_go_one_by_one(
    monkeypatch, run, make, dtypes
) -> None:
    monkeypatch.setattr(RuleOptimizer, "_cpu_run", run)
    monkeypatch.setattr(NovoGrad, "_cpu_run", run)
    together, alone = trained(make, dtypes, False), trained(make, dtypes, True)
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


@pytest.mark.parametrize(("make", "dtypes"), RULES.values(), ids=RULES)
def test_a_tensor_in_pieces_goes_where_it_goes_as_a_whole(
    monkeypatch, make, dtypes
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(RuleOptimizer, "_cpu_piece", 1000)
    together = trained(make, dtypes, True)
    monkeypatch.setattr(RuleOptimizer, "_cpu_piece", None)
    alone = trained(make, dtypes, True)
    for ours, theirs in zip(together, alone, strict=True):
        assert ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_pieces_are_views_of_one_large_contiguous_tensor() -> None:
    weight, slot, gradient = torch.zeros(3, 10, 10)
    size = 40 // torch.get_num_threads()
    pieces = in_pieces([weight], [{"m": slot}], [gradient], size)
    for (part,), (own,), (step,) in pieces:
        own["m"] += 1
        part += own["m"] + step
    assert len(pieces) > 1 and (weight == 1).all() and (slot == 1).all()
    for whole in (
        in_pieces([weight, weight], [{}, {}], [gradient, gradient], size),
        in_pieces([weight.t()], [{"m": slot}], [gradient], size),
        in_pieces([weight], [{"m": slot}], [gradient], 100),
        in_pieces([weight], [{"m": slot}], [gradient], None),
    ):
        assert len(whole) == 1
