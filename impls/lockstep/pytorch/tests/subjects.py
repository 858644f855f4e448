"""The optimizers that the laws are checked on, and a small model with two heads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lockstep import pytorch

Make = Callable[[Iterable], Optimizer]

TORCH: dict[str, Make] = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1),
    "SGD momentum": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9),
    "SGD nesterov": lambda params: torch.optim.SGD(
        params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1
    ),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.1),
    "Adam fused": lambda params: torch.optim.Adam(params, lr=0.1, fused=True),
    "Adam foreach": lambda params: torch.optim.Adam(params, lr=0.1, foreach=True),
    "Adam amsgrad": lambda params: torch.optim.Adam(params, lr=0.1, amsgrad=True),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.1, weight_decay=0.5),
    "RMSprop": lambda params: torch.optim.RMSprop(
        params, lr=0.1, momentum=0.5, centered=True
    ),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.1),
    "NAdam": lambda params: torch.optim.NAdam(params, lr=0.1),
    "RAdam": lambda params: torch.optim.RAdam(params, lr=0.1),
    "Adadelta": lambda params: torch.optim.Adadelta(params),
    "Adafactor": lambda params: torch.optim.Adafactor(params, lr=0.1),
    "Adamax": lambda params: torch.optim.Adamax(params, lr=0.1),
    "ASGD": lambda params: torch.optim.ASGD(params, lr=0.1),
    "Rprop": lambda params: torch.optim.Rprop(params, lr=0.1),
}
TF1: dict[str, Make] = {
    "GradientDescent": lambda params: pytorch.GradientDescentOptimizer(params, 0.1),
    "Momentum": lambda params: pytorch.MomentumOptimizer(params, 0.1, 0.9),
    "Nesterov": lambda params: pytorch.MomentumOptimizer(
        params, 0.1, 0.9, use_nesterov=True
    ),
    "TF1 Adam": lambda params: pytorch.AdamOptimizer(params, 0.1),
    "TF1 AdamW": lambda params: pytorch.AdamWOptimizer(params, 0.1, 0.1),
    "TF1 Adagrad": lambda params: pytorch.AdagradOptimizer(params, 0.1),
    "TF1 RMSProp": lambda params: pytorch.RMSPropOptimizer(
        params, 0.1, momentum=0.5, centered=True
    ),
    "Ftrl": lambda params: pytorch.FtrlOptimizer(
        params, 0.1, l1_regularization_strength=0.01
    ),
}
OWN = TF1 | {
    "NovoGrad": lambda params: pytorch.NovoGrad(params, 0.1, weight_decay=0.1),
}
ALL = TORCH | OWN
FUSED: dict[str, Make] = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(p, lr=0.1, amsgrad=True, fused=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "SGD nesterov": lambda p: torch.optim.SGD(
        p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1, fused=True
    ),
}
"""Optimizers that can skip a step on a GPU."""


class TwoHeads(nn.Module):
    """A body and two heads; a batch trains one of the heads only."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(7)
            self.body = nn.Linear(3, 4)
            self.a, self.b = nn.Linear(4, 2), nn.Linear(4, 2)

    def forward(self, inputs: Tensor, weight_a: float, weight_b: float) -> Tensor:
        hidden = self.body(inputs).tanh()
        loss_a, loss_b = self.a(hidden).square().sum(), self.b(hidden).square().sum()
        return weight_a * loss_a + weight_b * loss_b


def batches(count: int, seed: int = 0) -> Iterator[Tensor]:
    """Yield ``count`` batches of two rows."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield torch.randn(2, 3, generator=generator)


def train(model: TwoHeads, optimizer: Optimizer, pattern: str, seed: int = 0) -> None:
    """Train head a, b, both (``+``) or none (``0``), a letter a step."""
    for letter, inputs in zip(pattern, batches(len(pattern), seed), strict=True):
        optimizer.zero_grad()
        model(inputs, float(letter in "a+"), float(letter in "b+")).backward()
        optimizer.step()


def snapshot(module: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return copies of all parameters and of all state, by name."""
    found = {}
    for name, parameter in module.named_parameters():
        found[name] = parameter.detach().clone()
        for key, value in optimizer.state.get(parameter, {}).items():
            found[f"{name}/{key}"] = torch.as_tensor(value).clone()
    return found


def assert_same_bits(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Compare two snapshots: same names, dtypes and values."""
    assert got.keys() == expected.keys()
    for name, value in got.items():
        assert value.dtype == expected[name].dtype, name
        torch.testing.assert_close(
            value, expected[name], rtol=0, atol=0, equal_nan=True, msg=name
        )
