"""Every tool on two ranks: as one process trains, or refused; on all ranks alike."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD, Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.layouts import (
    TOLERANCES,
    Case,
    Named,
    Net,
    Pairs,
    assert_close,
    train,
    weights_of,
)
from lockstep.pytorch.tests.ranks import errors_of, exit_codes, needs_gloo, on_ranks
from lockstep.pytorch.tests.subjects import TF1, TwoHeads, batches
from lockstep.pytorch.wrapper import OptimizerWrapper
from lockstep.tests.wrappers import FIRST, LAYERS, PARALLEL, Layer, Parts

pytestmark = needs_gloo

# -- the tools in every layout ---------------------------------------------------------

RATE = 0.125
NORMS = {"takes_norms": True}
MASTERS = {"dtype": torch.bfloat16}


def momentum(named: Named) -> Optimizer:
    return SGD(named, RATE, momentum=0.5)


def multitask(named: Named) -> Optimizer:
    return ls.MultitaskOptimizerWrapper(momentum(named))


def rows(named: Named, limits: dict[str, list[int]]) -> Optimizer:
    return ls.VariableClippingOptimizer(momentum(named), limits, 0.5)


def scaled(named: Named, **options: Any) -> Optimizer:
    scale = ls.DynamicLossScale(8.0, 2)
    return ls.MixedPrecisionLossScaleOptimizer(momentum(named), scale, **options)


def fused(named: Named, scale: Any, **options: Any) -> Optimizer:
    adam = Adam(named, RATE, fused=True)
    return ls.MixedPrecisionLossScaleOptimizer(adam, scale, **options)


def masters(named: Named, scale: Any = 8.0, **options: Any) -> Optimizer:
    return ls.MixedPrecisionOptimizerWrapper(Adam(named, RATE), scale, **options)


def masters_around_wrappers(named: Named) -> Optimizer:
    inner = ls.MultitaskOptimizerWrapper(rows(named, {"body.weight": [1]}))
    return ls.MixedPrecisionOptimizerWrapper(inner, "dynamic")


def agn(named: Named) -> Optimizer:
    getter = ls.AGNCustomGetter("cpu")
    return ls.AGNOptimizer(SGD(getter([p for _, p in named]), RATE), 1, getter, 2)


def clipped_tensors(pairs: Pairs) -> Pairs:
    clipped, _ = ls.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
    return list(zip(clipped, [parameter for _, parameter in pairs], strict=True))


def larc(pairs: Pairs) -> Pairs:
    return ls.post_process_gradients(pairs, [], RATE, None, {"larc_eta": 0.25})


def moved_scales(pairs: Pairs) -> Pairs:
    """Multiply by what loss scales find in the gradients."""
    scale = ls.DynamicLossScale(8.0, 1)
    assert scale.update([gradient for gradient, _ in pairs])[1]
    has_nan, largest = ls.AutomaticLossScaler.check_grads(pairs)
    factor = float(scale()) / (16 + float(largest)) / (1 + float(has_nan))
    return [(gradient * factor, parameter) for gradient, parameter in pairs]


def around_adam(layer: Layer, named: Named) -> Optimizer:
    """Return a wrapper of the list around Adam."""
    return layer(Parts(ls, Adam(named, RATE), {"body.weight": [1]}))


CASES: dict[str, dict[str, Case]] = {
    **{
        row: {layer: Case(partial(around_adam, LAYERS[layer]))}
        for wrapper, layer in FIRST.items()
        if (row := f"`{wrapper}`") in PARALLEL
    },
    "`MixedPrecisionLossScaleOptimizer`": {
        "scaled": Case(scaled),
        "scaled, clipped": Case(partial(scaled, clip_norm=0.5), **NORMS),
        "scaled, fused": Case(
            lambda p: fused(p, ls.DynamicLossScale(8.0, 2), clip_norm=0.5), **NORMS
        ),
        "scaled, by hand": Case(scaled, by_hand=True),
    },
    "`DynamicLossScale`, `AutomaticLossScaler`": {
        "loss scales": Case(multitask, moved_scales)
    },
    "`MixedPrecisionOptimizerWrapper`": {
        "masters": Case(masters, **MASTERS),
        "masters, by hand": Case(masters, by_hand=True, **MASTERS),
        "masters of LogMax": Case(
            lambda p: masters(p, ls.AutomaticLossScaler("LogMax"), clip_norm=0.5),
            **MASTERS,
            **NORMS,
        ),
        "masters around wrappers": Case(masters_around_wrappers, **MASTERS),
    },
    "`VariableClippingOptimizer`, rows whole": {
        "rows": Case(lambda p: rows(p, {"body.weight": [1], "b.weight": [1]}))
    },
    "`VariableClippingOptimizer`, rows split": {
        "columns": Case(lambda p: rows(p, {"body.weight": [0]}))
    },
    "`NovoGrad`": {
        "NovoGrad": Case(lambda p: ls.NovoGrad(p, RATE, weight_decay=0.5), **NORMS)
    },
    "the optimizers of TensorFlow 1": {name: Case(make) for name, make in TF1.items()},
    "`clip_gradients_by_global_norm`, `clip_by_global_norm`, "
    "`clip_gradients_by_norm`": {
        "clipped pairs": Case(
            multitask, lambda p: ls.clip_gradients_by_global_norm(p, 0.5)[0], **NORMS
        ),
        "clipped tensors": Case(multitask, clipped_tensors, **NORMS),
        "clipped by norm": Case(
            multitask, lambda p: ls.clip_gradients_by_norm(p, 0.5), **NORMS
        ),
    },
    "`post_process_gradients` with LARC": {"LARC": Case(multitask, larc, **NORMS)},
    "`capturable=True`": {"capturable": Case(lambda p: fused(p, 8.0, capturable=True))},
    "`AGNOptimizer`": {"agn": Case(agn)},
}
"""Row of the page of data-parallel training -> cases that show it. A wrapper's first
layer is its case, unless it has others here."""
LAYOUTS = "DDP", "FSDP2", "tensor parallel"
ALL_CASES = {name: case for cases in CASES.values() for name, case in cases.items()}
CELLS = [
    pytest.param(name, layout, cell, id=f"{name}-{layout}")
    for row, cases in CASES.items()
    for name in cases
    for layout, cell in zip(LAYOUTS, PARALLEL[row], strict=True)
]


def test_every_wrapper_and_row_has_cases() -> None:
    plain = {n for n, cells in PARALLEL.items() if {*cells} <= {"right", "refused"}}
    assert set(CASES) == plain
    for name in ls.__all__:
        value = getattr(ls, name)
        if isinstance(value, type) and issubclass(value, OptimizerWrapper):
            assert name in " ".join(CASES)


@pytest.mark.parametrize(("name", "layout", "cell"), CELLS)
def test_two_ranks_do_as_the_page_says(seen, name, layout, cell) -> None:
    case = ALL_CASES[name]
    first, second = (found[name] for found in seen("tools"))
    alone, mine = first[""], first[layout]
    for key in ("applied", "scales", "refused"):
        assert mine[key] == second[layout][key]
    assert bool(mine["refused"]) == (cell == "refused"), mine["refused"]
    if cell == "refused":
        assert_close(mine["weights"], weights_of(Net().to(case.dtype)))
        return
    assert (mine["applied"], mine["scales"]) == (alone["applied"], alone["scales"])
    assert_close(mine["weights"], second[layout]["weights"])
    exact = layout == "DDP" or (layout == "FSDP2" and not case.takes_norms)
    tolerance = 0 if exact else TOLERANCES[case.dtype]
    assert_close(mine["weights"], alone["weights"], tolerance)


def tools(rank: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return case -> layout -> what was seen; "" is the layout of one process."""
    return {
        name: {layout: train(case, layout, rank) for layout in ("", *LAYOUTS)}
        for name, case in ALL_CASES.items()
    }


# -- two ranks of DDP ------------------------------------------------------------------


def alternating_heads(rank: int) -> dict[str, Any]:
    """Train head b on rank 1 alone, then on none; DDP fills in zeros elsewhere."""
    model, found = TwoHeads(), {}
    ranks = DistributedDataParallel(model, find_unused_parameters=True)
    adam = Adam(model.named_parameters(), RATE)
    optimizer = ls.MultitaskOptimizerWrapper(adam)
    for name, on in (("one", float(rank)), ("none", 0.0)):
        before = model.b.weight.detach().clone()
        optimizer.zero_grad()
        ranks(torch.ones(2, 3), 1.0, on).backward()
        optimizer.step()
        state = adam.state[model.b.weight]
        moved = not torch.equal(before, model.b.weight)
        found[name] = (moved, float(state["step"]), state["exp_avg"].clone())
    return found | {"weights": weights_of(model)}


def test_two_ranks_skip_a_head_only_if_absent_on_both(seen) -> None:
    first, second = seen("alternating_heads")
    for rank in (first, second):
        assert (rank["one"][:2], rank["none"][:2]) == ((True, 1.0), (False, 1.0))
        assert torch.equal(rank["one"][2], rank["none"][2])
    assert_close(first["weights"], second["weights"])


class Table(nn.Module):
    """An embedding whose weight a forward pass uses twice."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        self.rows = nn.Embedding(6, 2, sparse=sparse)
        nn.init.constant_(self.rows.weight, 4.0)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return (self.rows(first).sum() * self.rows(second).sum()) / 64


def clipped_rows(rank: int) -> list[Tensor]:
    """Name other rows on each rank, one of them twice; dense and sparse gradients."""
    found = []
    for sparse in (False, True):
        model = Table(sparse)
        ranks = DistributedDataParallel(model)
        sgd = SGD(model.named_parameters(), lr=0.5)
        optimizer = ls.VariableClippingOptimizer(sgd, {"rows.weight": [1]}, 1.0)
        named = torch.tensor([[0, 1, 1], [2, 3, 3]])[rank]
        for _ in range(3):
            optimizer.zero_grad()
            ranks(named, named[:1]).backward()
            optimizer.step()
        found.append(model.rows.weight.detach().clone())
    return found


def test_row_clip_agrees_on_two_ranks(seen) -> None:
    (dense, sparse), second = seen("clipped_rows")
    assert torch.equal(dense, second[0]) and torch.equal(sparse, second[1])
    # What any rank has named is cut on both.
    assert torch.equal(dense[:4], sparse[:4])
    assert (dense.norm(dim=1) <= 1.000001).all() and (sparse[4:] == 4).all()


WHOLE_STEPS = (
    {"clip_gradients": 0.5},
    {"clip_gradients": 0.5, "iter_size": 2},
    {"dtype": "mixed", "loss_scaling": 8.0},
)


def whole_step(model: nn.Module, loss: Callable, options: dict) -> Callable:
    return ls.optimize_loss(loss, "SGD", {}, RATE, model.parameters(), **options)


def whole_steps(rank: int) -> list[dict[str, Tensor]]:
    """Take steps of ``optimize_loss`` whose loss calls a model inside DDP."""
    ended = []
    for options in WHOLE_STEPS:
        model = TwoHeads()
        parallel = DistributedDataParallel(model)
        loss = partial(parallel, weight_a=1.0, weight_b=0.5)
        step = whole_step(model, loss, options)
        for data in batches(4, seed=rank):
            step(data)
        ended.append(weights_of(model))
    return ended


def test_ddp_averages_in_optimize_loss_if_the_loss_calls_it(seen) -> None:
    first, second = seen("whole_steps")
    for options, mine, his in zip(WHOLE_STEPS, first, second, strict=True):
        model = TwoHeads()

        def joint(*inputs: Tensor, model: nn.Module = model) -> Tensor:
            return sum(model(data, 1.0, 0.5) for data in inputs) / 2

        step = whole_step(model, joint, options)
        for inputs in zip(batches(4, seed=0), batches(4, seed=1), strict=True):
            step(*inputs)
        assert_close(mine, his)
        # The sum over ranks is rounded elsewhere than that of the joint loss.
        assert_close(mine, weights_of(model), 1e-5)


def do_all(rank: int) -> dict[str, Any]:
    jobs = tools, alternating_heads, clipped_rows, whole_steps
    return {job.__name__: job(rank) for job in jobs}


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Callable[[str], list]:
    """Return what a job returned on each rank; all jobs share two processes."""
    ranks = on_ranks(2, do_all, tmp_path_factory.mktemp("ranks"))
    return lambda job: [rank[job] for rank in ranks]


# -- a rank that is killed -------------------------------------------------------------

KILLED_AT = 3


def job_of_one_weight() -> tuple[nn.Module, Optimizer]:
    net = nn.Linear(2, 1, bias=False)
    nn.init.constant_(net.weight, 1.0)
    return net, scaled(list(net.named_parameters()))


def step_of(called: nn.Module, optimizer: Any, inputs: Tensor) -> None:
    optimizer.zero_grad()
    optimizer.scale_loss(called(inputs).mean()).backward()
    optimizer.step()


def batch(step: int) -> Tensor:
    """Return the examples of all ranks: small whole numbers, so all sums are exact."""
    return torch.tensor([[step + 1.0, 2.0], [3.0, step - 1.0]])


def train_and_be_killed(rank: int, folder: str) -> None:
    """Train; rank 1 is killed. The other writes down what it was left with."""
    net, optimizer = job_of_one_weight()
    ranks, saved = DistributedDataParallel(net), Path(folder, f"steps{KILLED_AT}")
    for step in range(KILLED_AT + 1):
        if rank == 1 and step == KILLED_AT:
            # The other rank may still be receiving what the last step sent.
            while not saved.exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            step_of(ranks, optimizer, batch(step)[rank : rank + 1])
        except RuntimeError:
            torch.save(net.state_dict(), Path(folder, "left.pt"))
            raise
        Path(folder, f"steps{step + 1}").touch()


def test_when_a_rank_is_killed_the_other_raises_and_has_no_half_a_step(
    tmp_path: Path,
) -> None:
    job = partial(train_and_be_killed, folder=str(tmp_path))
    assert exit_codes(2, job, tmp_path) == [1, -signal.SIGKILL]
    # It does not wait for the time limit of the process group.
    assert re.search("Connection (closed|reset) by peer", errors_of(tmp_path))
    net, optimizer = job_of_one_weight()
    for step in range(KILLED_AT):
        step_of(net, optimizer, batch(step))
    left = torch.load(tmp_path / "left.pt", weights_only=True)
    assert_close(left, net.state_dict())
