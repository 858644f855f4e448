"""Parameters of which each rank has a part: refused, judged as a whole, resumed."""

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
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.optim import SGD, Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.errors import LockstepError
from lockstep.pytorch.tests.layouts import (
    TOLERANCES,
    assert_close,
    sharded,
    train,
    weights_of,
)
from lockstep.pytorch.tests.ranks import needs_gloo, on_ranks
from lockstep.pytorch.tests.subjects import TwoHeads
from lockstep.pytorch.tests.test_ranks import ALL_CASES

pytestmark = needs_gloo
RATE, BATCH = 0.125, 4

# -- two ranks -------------------------------------------------------------------------


def agn(opt: Optimizer) -> Optimizer:
    getter = ls.AGNCustomGetter("cpu")
    getter([p for group in opt.param_groups for p in group["params"]])
    return ls.AGNOptimizer(opt, 1, getter)


def capturable(opt: Optimizer) -> Optimizer:
    opt.param_groups[0]["fused"] = True
    return ls.MixedPrecisionLossScaleOptimizer(opt, 8.0, capturable=True)


WHOLE_ONLY: dict[str, Callable[[Optimizer], Optimizer]] = {
    "agn": agn,
    "masters": ls.MixedPrecisionOptimizerWrapper,
    "capturable": capturable,
}


def refused(action: Callable[[], object]) -> bool:
    try:
        action()
    except LockstepError:
        return True
    return False


def refusals(rank: int) -> dict[str, bool]:
    """Return what was refused, by name."""
    model, found = sharded(TwoHeads()), {}
    parts, named = list(model.parameters()), list(model.named_parameters())
    for name, wrap in WHOLE_ONLY.items():
        whole = nn.Parameter(torch.ones(2))
        optimizer = wrap(SGD([whole], lr=0.1))
        add = partial(optimizer.add_param_group, {"params": parts})
        found[f"a group of {name}"] = refused(add) and len(optimizer.param_groups) == 1
    optimizer = ls.MultitaskOptimizerWrapper(SGD(named, lr=0.1))
    inputs = torch.ones(2, 3)
    pairs = [(torch.ones_like(part).detach(), part) for part in parts]
    calls = {
        "minimize": lambda: optimizer.minimize(lambda: model(inputs, 1.0, 1.0)),
        "optimize_loss": lambda: ls.optimize_loss(torch.ones, "SGD", {}, 0.1, named),
        "reduce_gradients": lambda: ls.reduce_gradients(pairs, on_horovod=True),
    }
    return found | {name: refused(call) for name, call in calls.items()}


def test_what_needs_whole_parameters_is_refused(two) -> None:
    for rank in two:
        assert all(rank["refusals"].values()), rank["refusals"]


def terms(rank: int) -> list[list[float]]:
    """Train weights that are the same on all ranks, whose gradients are terms."""
    mesh, found = init_device_mesh("cpu", (2,)), []
    for mine in ([[3.0, 0.0], [0.0, 4.0]], [[1.0, -1.0], [-1.0, 1.0]]):
        gradient = DTensor.from_local(torch.tensor(mine[rank]), mesh, [Partial()])
        start = DTensor.from_local(torch.zeros(2), mesh, [Replicate()])
        for make in (ls.GradientDescentOptimizer, SGD):
            weight = nn.Parameter(start.clone())
            optimizer = ls.MultitaskOptimizerWrapper(make([weight], 1.0))
            pairs, _ = ls.clip_gradients_by_global_norm([(gradient, weight)], 2.5)
            weight.grad = pairs[0][0]
            optimizer.step()
            skipped = len(optimizer.last_step.skipped)
            found.append([*weight.full_tensor().tolist(), float(skipped)])
    return found


def test_terms_of_gradients_are_added_up_before_they_are_judged(two) -> None:
    assert two[0]["terms"] == two[1]["terms"]
    # The norm of [3, 4] is 5, and it is clipped to 2.5.
    assert two[0]["terms"] == [[-1.5, -2.0, 0.0]] * 2 + [[0.0, 0.0, 1.0]] * 2


def one_row(rank: int) -> list[list[float]]:
    """Train weights whose gradient is not zero, or not finite, on one rank alone."""
    found = []
    for value in (0.0, 0.5, torch.inf):
        weight = sharded(TwoHeads()).body.weight
        gradient = weight.detach().clone().zero_()
        if rank == 1:
            gradient.to_local()[0, 0] = value
        adam = Adam([weight], RATE)
        optimizer = ls.MixedPrecisionLossScaleOptimizer(
            ls.MultitaskOptimizerWrapper(adam), ls.DynamicLossScale(8.0)
        )
        optimizer.apply_gradients([(gradient, weight)])
        steps = adam.state[weight].get("step", 0) if weight in adam.state else 0
        found.append([float(optimizer.loss_scale), float(steps)])
    return found


def test_one_row_decides_for_all_ranks(two) -> None:
    for rank in two:
        assert rank["one_row"] == [[8.0, 0.0], [8.0, 1.0], [4.0, 0.0]]


# -- another number of ranks -----------------------------------------------------------


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
GRID = "multitask", "scaled, clipped", "NovoGrad", "LARC"
"""The cases that are trained on a mesh of two axes."""


class Small(nn.Module):
    """Two tables; the gradients are small whole numbers, so every sum is exact."""

    def __init__(self) -> None:
        super().__init__()
        start = torch.linspace(-1, 1, 15)
        self.first = nn.Linear(3, 5, bias=False)
        self.second = nn.Linear(3, 1, bias=False)
        with torch.no_grad():
            self.first.weight.copy_(start.view(5, 3))
            self.second.weight.copy_(start[:3].view(1, 3))

    def forward(self, inputs: Tensor, second: float) -> Tensor:
        return self.first(inputs).sum() + second * self.second(inputs).sum()


def started(name: str, ranks: int) -> tuple[nn.Module, Optimizer]:
    model = sharded(Small(), ranks) if ranks > 1 else Small()
    return model, MAKE[name](list(model.named_parameters()))


def advance(
    model: nn.Module, optimizer: Any, steps: range, rank: int, ranks: int
) -> None:
    """Take steps on batches of four, of which each rank has its share."""
    for step in steps:
        optimizer.zero_grad()
        for k in range(rank, BATCH, ranks):
            inputs = torch.tensor([[step + 1.0, k - step, 2.0 - k]])
            loss = model(inputs, float(step % 2)) * ranks / BATCH
            scales = hasattr(optimizer, "scale_loss")
            (optimizer.scale_loss(loss) if scales else loss).backward()
        optimizer.step()


def final(model: nn.Module, optimizer: Any) -> dict[str, Tensor]:
    scale = getattr(optimizer, "loss_scale", torch.ones(()))
    return weights_of(model) | {"scale": scale}


def states_of(model: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    return {
        "model": states.get_model_state_dict(model),
        "optimizer": states.get_optimizer_state_dict(model, optimizer),
    }


def saved_and_trained(rank: int, folder: str) -> dict[str, Any]:
    """Train two steps, save, and train three more."""
    finals = {}
    for name in MAKE:
        model, optimizer = started(name, 2)
        advance(model, optimizer, range(2), rank, 2)
        dcp.save(states_of(model, optimizer), checkpoint_id=f"{folder}/{name}")
        advance(model, optimizer, range(2, 5), rank, 2)
        finals[name] = final(model, optimizer)
    return finals


def resumed(rank: int, ranks: int, folder: str) -> dict[str, Any]:
    """Load what was saved, with another number of ranks, and train three steps."""
    finals = {}
    for name in MAKE:
        model, optimizer = started(name, ranks)
        saved = states_of(model, optimizer)
        dcp.load(saved, checkpoint_id=f"{folder}/{name}")
        states.set_model_state_dict(model, saved["model"])
        states.set_optimizer_state_dict(model, optimizer, saved["optimizer"])
        advance(model, optimizer, range(2, 5), rank, ranks)
        finals[name] = final(model, optimizer)
    return finals


def on_two(rank: int, folder: str) -> dict[str, Any]:
    jobs = {job.__name__: job(rank) for job in (refusals, terms, one_row)}
    return jobs | {"finals": saved_and_trained(rank, folder)}


def on_four(rank: int, folder: str) -> dict[str, Any]:
    grid = {
        name: {layout: train(ALL_CASES[name], layout, rank) for layout in ("", "grid")}
        for name in GRID
    }
    return {"finals": resumed(rank, 4, folder), "grid": grid}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("saved")


@pytest.fixture(scope="module")
def two(folder, tmp_path_factory) -> list[dict]:
    job = partial(on_two, folder=str(folder))
    return on_ranks(2, job, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(two, folder, tmp_path_factory) -> list[dict]:
    job = partial(on_four, folder=str(folder))
    return on_ranks(4, job, tmp_path_factory.mktemp("four"))


@pytest.fixture(scope="module")
def one(two, folder, tmp_path_factory) -> dict:
    job = partial(resumed, ranks=1, folder=str(folder))
    return on_ranks(1, job, tmp_path_factory.mktemp("one"))[0]


@pytest.mark.parametrize("name", MAKE)
def test_a_run_of_two_ranks_goes_on_with_one_or_four(two, one, four, name) -> None:
    tolerance = 0 if name in EXACT else TOLERANCES[torch.float32]
    for finals in (one, four[0]["finals"]):
        assert_close(finals[name], two[0]["finals"][name], tolerance)


@pytest.mark.parametrize("name", GRID)
def test_ranks_may_split_data_and_tensors(four, name) -> None:
    alone, mine = (four[0]["grid"][name][layout] for layout in ("", "grid"))
    for rank in four:
        seen = rank["grid"][name]["grid"]
        for key in ("applied", "scales", "refused"):
            assert seen[key] == alone[key]
        assert_close(seen["weights"], mine["weights"])
    assert_close(mine["weights"], alone["weights"], TOLERANCES[torch.float32])
