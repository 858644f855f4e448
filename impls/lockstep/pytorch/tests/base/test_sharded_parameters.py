"""Parameters of which each rank has a part, as FSDP2 makes them, are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import distributed, nn
from torch.optim import Optimizer

from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.tests.ranks import on_two_ranks
from lockstep.pytorch.tests.subjects import TwoHeads

pytestmark = pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()),
    reason="this torch has no gloo",
)


def agn(opt: Optimizer) -> AGNOptimizer:
    getter = AGNCustomGetter("cpu")
    getter([p for group in opt.param_groups for p in group["params"]])
    return AGNOptimizer(opt, 1, getter)


def scaled(opt: Optimizer) -> MixedPrecisionLossScaleOptimizer:
    return MixedPrecisionLossScaleOptimizer(opt, DynamicLossScale(8.0))


WRAPPERS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "agn": agn,
    "masters": lambda opt: MixedPrecisionOptimizerWrapper(opt, 8.0),
    "multitask": MultitaskOptimizerWrapper,
    "rows": lambda opt: VariableClippingOptimizer(opt, {}, 1.0),
    "scaled": scaled,
}


def sharded() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = TwoHeads()
    ranks = distributed.get_world_size()
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    return model


def sentence_of(action: Callable[[], object]) -> str:
    try:
        action()
    except ValueError as error:
        return str(error)
    return "nothing raised"


def refusals(rank: int) -> dict[str, list[str]]:
    """Return the sentences of construction, a new group, and a step."""
    sentences = {}
    for name, wrap in WRAPPERS.items():
        model = sharded()
        parts = list(model.parameters())
        bare = torch.optim.SGD(parts, lr=0.1)
        made = [sentence_of(lambda wrap=wrap, bare=bare: wrap(bare))]
        whole = nn.Parameter(torch.ones(2))
        optimizer = wrap(torch.optim.SGD([("whole", whole)], lr=0.1))
        for params in (parts, parts[0], iter(parts), [("part", parts[0])]):
            group = {"params": params}
            add = optimizer.add_param_group
            made.append(sentence_of(lambda add=add, group=group: add(group)))
        groups = optimizer.param_groups
        made.append(f"{len(groups)} group of {len(groups[0]['params'])}")
        # As where somebody puts them into a group by hand.
        groups[0]["params"] = [whole, *parts]
        whole.grad = torch.ones(2)
        for part in parts:
            part.grad = torch.ones_like(part)
        made.append(sentence_of(optimizer.step))
        if hasattr(optimizer, "unscale_"):
            made.append(sentence_of(optimizer.unscale_))
        made.append(str(whole.tolist()))
        sentences[name] = made
    return sentences


def test_they_are_refused_before_anything_changes(tmp_path):
    first, second = on_two_ranks(refusals, tmp_path)
    assert first == second
    for found in first.values():
        *before, groups, step = found[:7]
        assert groups == "1 group of 1" and found[-1] == "[1.0, 1.0]"
        for sentence in (*before, step, *found[7:-1]):
            assert "whole on each rank, got a DTensor, as fully_shard" in sentence
