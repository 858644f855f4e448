"""Wrappers around torch's ``ZeroRedundancyOptimizer`` on two ranks."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.optim import Adam, Optimizer

from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
)
from lockstep.pytorch.tests.ranks import needs_gloo, on_two_ranks

pytestmark = needs_gloo
RATE = 0.125


def scaled(optimizer: Optimizer) -> MixedPrecisionLossScaleOptimizer:
    inner = MultitaskOptimizerWrapper(optimizer)
    return MixedPrecisionLossScaleOptimizer(inner, "dynamic")


def split(model: nn.Module) -> Any:
    # Imported here, because torch warns at the import.
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(model.parameters(), Adam, lr=RATE)


def whole(model: nn.Module) -> Adam:
    return Adam(model.parameters(), lr=RATE)


def new_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def train(model: nn.Module, optimizer: Any, steps: range) -> None:
    for step in steps:
        inputs = torch.full((2, 3), 1.0 + step)
        optimizer.zero_grad()
        optimizer.scale_loss(model(inputs).square().mean()).backward()
        optimizer.step()


def consolidated(optimizer: Any) -> dict[str, Any]:
    """Return the state of all ranks, on both ranks."""
    optimizer.consolidate_state_dict(0)
    answers = [optimizer.state_dict() if distributed.get_rank() == 0 else None]
    distributed.broadcast_object_list(answers)
    return answers[0]


def resumed() -> dict[str, list[torch.Tensor]]:
    model = new_model()
    optimizer = scaled(split(model))
    train(model, optimizer, range(3))
    saved, weights = consolidated(optimizer), model.state_dict()
    model = new_model(seed=1)
    model.load_state_dict(weights)
    # The saved state is not changed, so it can be loaded twice.
    scaled(split(new_model())).load_state_dict(saved)
    optimizer = scaled(split(model))
    optimizer.load_state_dict(saved)
    train(model, optimizer, range(3, 6))
    alone = new_model()
    train(alone, scaled(whole(alone)), range(6))
    return {
        "resumed": [p.detach() for p in model.parameters()],
        "alone": [p.detach() for p in alone.parameters()],
    }


def refused() -> tuple[str, str]:
    model = new_model().bfloat16()
    optimizer = split(model)
    listed = list(optimizer.param_groups[0]["params"])
    with pytest.raises(ValueError, match="fully_shard") as made:
        MixedPrecisionOptimizerWrapper(optimizer)
    assert all(map(torch.Tensor.is_set_to, listed, model.parameters()))
    assert "skipped_steps" not in optimizer.param_groups[0]
    wide = MixedPrecisionOptimizerWrapper(split(new_model()))
    with pytest.raises(ValueError, match="fully_shard") as added:
        wide.add_param_group({"params": list(model.parameters())})
    return str(made.value), str(added.value)


def do_all(rank: int) -> dict[str, Any]:
    return {**resumed(), "refused": list(refused())}


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> list[dict[str, Any]]:
    return on_two_ranks(do_all, tmp_path_factory.mktemp("ranks"))


def test_a_resumed_run_ends_as_one_without_a_break(seen) -> None:
    for rank in seen:
        torch.testing.assert_close(rank["resumed"], rank["alone"], rtol=0, atol=0)


def test_masters_are_refused_before_anything_changes(seen) -> None:
    for message in (message for rank in seen for message in rank["refused"]):
        assert "ZeroRedundancyOptimizer" in message
