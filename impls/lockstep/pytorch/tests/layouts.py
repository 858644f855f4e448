"""One model laid out over ranks in every way, and trained as in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from lockstep.errors import LockstepError
from lockstep.pytorch.tests.subjects import TwoHeads

Named = list[tuple[str, Tensor]]
Pairs = list[tuple[Tensor | None, Tensor]]


class Case(NamedTuple):
    """A tool in use.

    Attributes:
        make: makes an optimizer of named parameters.
        process: changes pairs of gradients and parameters before the step.
        by_hand: call ``unscale_`` before the step.
        dtype: of the model.
        takes_norms: sums over several elements, so the order of additions matters.
    """

    make: Callable[[Named], Optimizer]
    process: Callable[[Pairs], Pairs] | None = None
    by_hand: bool = False
    dtype: torch.dtype = torch.float32
    takes_norms: bool = False


class Net(TwoHeads):
    """Two heads, and one number that no layout splits evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor([0.25]))

    def forward(self, inputs: Tensor, weight_a: float, weight_b: float) -> Tensor:
        loss = super().forward(inputs, weight_a, weight_b)
        return loss + (self.offset * inputs).sum()


RANKS = 2
ROWS = ColwiseParallel(output_layouts=Replicate())
COLUMNS = RowwiseParallel(input_layouts=Replicate())


def sharded(model: nn.Module, ranks: int = RANKS) -> nn.Module:
    return fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))


def tensor_parallel(model: Net) -> nn.Module:
    """Split rows here, columns there; leave the offset whole on each rank."""
    plan = {"body": ROWS, "a": COLUMNS, "b": ROWS}
    return parallelize_module(model, init_device_mesh("cpu", (RANKS,)), plan)


def on_a_grid(model: Net) -> nn.Module:
    """Split data in two and each tensor in two: four ranks."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    split = parallelize_module(model, mesh["tensor"], {"body": ROWS, "a": COLUMNS})
    return fully_shard(split, mesh=mesh["data"])


LAYOUTS: dict[str, Callable[[Net], nn.Module]] = {
    "DDP": DistributedDataParallel,
    "FSDP2": sharded,
    "tensor parallel": tensor_parallel,
    "grid": on_a_grid,
}


def backward(
    layout: str, rank: int, parameters: list[Tensor], loss_of: Callable[[int], Tensor]
) -> None:
    """Differentiate the mean of the losses of all ranks.

    A plain model takes one rank's loss after the other, and so do ranks that share a
    tensor, not data. On a grid two ranks share data.
    """
    if layout in ("DDP", "FSDP2", "grid"):
        loss_of(rank // 2 if layout == "grid" else rank).backward()
        return
    for k in range(RANKS):
        loss_of(k).backward()
    for parameter in parameters:
        if parameter.grad is not None:
            parameter.grad = parameter.grad / RANKS


def whole(tensor: Any) -> Tensor:
    """Return a copy of a tensor with the parts of all ranks."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return full.detach().clone()


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: whole(parameter) for name, parameter in model.named_parameters()}


def train(case: Case, layout: str, rank: int) -> dict[str, Any]:
    """Train four steps: head b is absent from the second, the third overflows.

    ``layout``: "" is that of one process.
    """
    model = Net().to(case.dtype)
    called = LAYOUTS[layout](model) if layout else model
    named = list(model.named_parameters())
    parameters = [parameter for _, parameter in named]
    seen: dict[str, Any] = {"applied": [], "scales": [], "refused": ""}
    try:
        optimizer = case.make(named)
        scales = hasattr(optimizer, "scale_loss")
        for step in range(4):
            optimizer.zero_grad()

            def loss_of(k: int, step: int = step) -> Tensor:
                generator = torch.Generator().manual_seed(10 * step + k)
                inputs = torch.randn(2, 3, generator=generator).to(case.dtype)
                loss = called(inputs, 1.0, float(step != 1))
                if not scales:
                    return loss
                overflows = step == 2 and k == 1
                return optimizer.scale_loss(loss * torch.inf if overflows else loss)

            backward(layout, rank, parameters, loss_of)
            if case.by_hand:
                optimizer.unscale_()
            if case.process:
                pairs = [(parameter.grad, parameter) for parameter in parameters]
                optimizer.apply_gradients(case.process(pairs))
            else:
                optimizer.step()
            if hasattr(optimizer, "last_step"):
                seen["applied"].append(optimizer.last_step.applied)
            if scales:
                seen["scales"].append(float(optimizer.loss_scale))
    except LockstepError as error:
        seen["refused"] = type(error).__name__
    return seen | {"weights": weights_of(model)}


TOLERANCES = {torch.float32: 1e-6, torch.bfloat16: 2.0**-7}
"""What another order of additions may change in weights of about 1.

A sum of two ranks' terms in bfloat16 is rounded to 8 bits.
"""


def assert_close(
    got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 0
) -> None:
    assert got.keys() == expected.keys()
    for name, value in got.items():
        torch.testing.assert_close(
            value, expected[name], rtol=0, atol=tolerance, msg=lambda m, n=name: n + m
        )
