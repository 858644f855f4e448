"""A run of two ranks goes on with one or four; four ranks split data and tensors."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint import state_dict as states
from torch.optim import SGD, Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.base.parallel_cases import TOLERANCES, assert_close
from lockstep.pytorch.tests.base.parallel_rows import ROWS
from lockstep.pytorch.tests.ranks import needs_gloo, on_ranks

pytestmark = needs_gloo
RATE, BATCH = 0.125, 4


def scaled(named: Any, clip_norm: float | None = None) -> Optimizer:
    sgd, scale = SGD(named, RATE, momentum=0.5), ls.DynamicLossScale(8.0, 3)
    return ls.MixedPrecisionLossScaleOptimizer(sgd, scale, clip_norm=clip_norm)


def rows(named: Any) -> Optimizer:
    adam = ls.AdamOptimizer(named, RATE)
    return ls.VariableClippingOptimizer(adam, {"first.weight": [1]}, 0.5)


MAKE: dict[str, Callable[[Any], Optimizer]] = {
    "multitask": lambda p: ls.MultitaskOptimizerWrapper(Adam(p, RATE)),
    "scaled": scaled,
    "rows": rows,
    "scaled, clipped": partial(scaled, clip_norm=0.5),
    "NovoGrad": lambda p: ls.NovoGrad(p, RATE),
}
EXACT = {"multitask", "scaled", "rows"}
"""No sum runs over several elements, and the sums of gradients are exact."""
GRID = {
    name: case
    for row in ROWS.values()
    for name, case in row.cases.items()
    if name in ("multitask", "scaled, clipped", "NovoGrad", "LARC")
}
"""The cases that are trained on a mesh of two axes."""


class Small(nn.Module):
    """Two tables; the gradients are small whole numbers, so every sum is exact."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        start = torch.linspace(-1, 1, 15)
        self.first = nn.Linear(3, 5, bias=False)
        self.second = nn.Linear(3, 1, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(start.view(5, 3))
            self.second.weight.copy_(start[:3].view(1, 3))
        self.to(dtype)

    def forward(self, inputs: Tensor, second: float) -> Tensor:
        return self.first(inputs).sum() + second * self.second(inputs).sum()


def started(name: str, ranks: int) -> tuple[nn.Module, nn.Module, Optimizer]:
    """Return a model, the module of what its optimizer trains, and this."""
    model = Small(torch.float32)
    if ranks > 1:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    optimizer = MAKE[name](list(model.named_parameters()))
    return model, model, optimizer


def train(
    model: nn.Module, optimizer: Optimizer, steps: range, rank: int, ranks: int
) -> None:
    """Take steps on batches of four, of which each rank has its share."""
    for step in steps:
        optimizer.zero_grad()
        for k in range(rank, BATCH, ranks):
            inputs = torch.tensor([[step + 1.0, k - step, 2.0 - k]])
            loss = model(inputs.to(next(model.parameters()).dtype), float(step % 2))
            loss = loss * ranks / BATCH
            scales = hasattr(optimizer, "scale_loss")
            (optimizer.scale_loss(loss) if scales else loss).backward()
        optimizer.step()


def final(module: nn.Module, optimizer: Any) -> dict[str, Tensor]:
    """Return the weights, masters in place of half-precision ones, and the scale."""
    scale = optimizer.loss_scale if hasattr(optimizer, "loss_scale") else torch.ones(())
    weights = {
        name: getattr(p, "full_tensor", lambda p=p: p)().detach().clone()
        for name, p in module.named_parameters()
    }
    return {**weights, "scale": scale}


def saved_and_trained(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    """Train two steps, save, and train three more."""
    finals = {}
    for name in MAKE:
        model, module, optimizer = started(name, ranks)
        train(model, optimizer, range(2), rank, ranks)
        dcp.save(states_of(model, module, optimizer), checkpoint_id=f"{folder}/{name}")
        train(model, optimizer, range(2, 5), rank, ranks)
        finals[name] = final(module, optimizer)
    return finals


def resumed(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    """Load what was saved, with another number of ranks, and train three steps."""
    finals = {}
    for name in MAKE:
        model, module, optimizer = started(name, ranks)
        everything = states_of(model, module, optimizer)
        dcp.load(everything, checkpoint_id=f"{folder}/{name}")
        states.set_model_state_dict(model, everything["model"])
        states.set_optimizer_state_dict(module, optimizer, everything["optimizer"])
        train(model, optimizer, range(2, 5), rank, ranks)
        finals[name] = final(module, optimizer)
    return finals


def states_of(
    model: nn.Module, module: nn.Module, optimizer: Optimizer
) -> dict[str, Any]:
    return {
        "model": states.get_model_state_dict(model),
        "optimizer": states.get_optimizer_state_dict(module, optimizer),
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, dict]:
    """Where two ranks saved, and what they had in the end."""
    folder = tmp_path_factory.mktemp("saved")
    job = partial(saved_and_trained, ranks=2, folder=str(folder))
    return folder, on_ranks(2, job, tmp_path_factory.mktemp("two"))[0]


def train_on_a_grid(rank: int) -> dict[str, dict[str, dict]]:
    """Train in one process, and on a mesh of two axes."""
    from lockstep.pytorch.tests.base.parallel_layouts import train

    return {
        name: {"alone": train(case, None, rank), "grid": train(case, "grid", rank)}
        for name, case in GRID.items()
    }


def on_four(rank: int, folder: str) -> dict[str, Any]:
    """Do what four ranks are started for."""
    return {"finals": resumed(rank, 4, folder), "grid": train_on_a_grid(rank)}


@pytest.fixture(scope="module")
def one(trained, tmp_path_factory) -> dict:
    job = partial(resumed, ranks=1, folder=str(trained[0]))
    return on_ranks(1, job, tmp_path_factory.mktemp("one"))[0]


@pytest.fixture(scope="module")
def four(trained, tmp_path_factory) -> list[dict]:
    job = partial(on_four, folder=str(trained[0]))
    return on_ranks(4, job, tmp_path_factory.mktemp("four"))


@pytest.mark.parametrize("name", MAKE)
def test_a_run_of_two_ranks_goes_on_with_one_or_four(trained, one, four, name) -> None:
    tolerance = 0 if name in EXACT else TOLERANCES[torch.float32]
    for finals in (one, four[0]["finals"]):
        assert_close(finals[name], trained[1][name], tolerance)


@pytest.mark.parametrize("name", GRID)
def test_ranks_may_split_data_and_tensors(four, name) -> None:
    alone = four[0]["grid"][name]["alone"]
    for rank in four:
        seen = rank["grid"][name]["grid"]
        for key in ("applied", "scales", "refused"):
            assert seen[key] == alone[key]
        assert_close(seen["weights"], four[0]["grid"][name]["grid"]["weights"], 0)
    assert_close(seen["weights"], alone["weights"], TOLERANCES[GRID[name].dtype])
