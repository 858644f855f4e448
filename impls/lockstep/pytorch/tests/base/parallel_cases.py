"""Cases of a tool that are trained in each layout, and the model that they train."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.subjects import TwoHeads

__all__ = [
    "NORMS",
    "RATE",
    "TOLERANCES",
    "Case",
    "Named",
    "Net",
    "Pairs",
    "assert_close",
    "momentum",
    "multitask",
]

Named = list[tuple[str, Tensor]]
Pairs = list[tuple[Tensor | None, Tensor]]
RATE = 0.125
NORMS = {"takes_norms": True}


class Net(TwoHeads):
    """Two heads, and one number that no layout splits evenly."""

    def __init__(self) -> None:
        super().__init__()
        self.offset = nn.Parameter(torch.tensor([0.25]))

    def forward(self, inputs: Tensor, weight_a: float, weight_b: float) -> Tensor:
        loss = super().forward(inputs, weight_a, weight_b)
        return loss + (self.offset * inputs).sum()


class Case(NamedTuple):
    """A tool in use.

    Attributes:
        make: makes an optimizer of named parameters.
        process: changes pairs of gradients and parameters before the step.
        by_hand: call ``unscale_`` before the step.
        dtype: of the model.
        takes_norms: sums over several elements, so the order of additions matters.
        refusal: what the sentence says where it is refused.
    """

    make: Callable[[Named], Optimizer]
    process: Callable[[Pairs], Pairs] | None = None
    by_hand: bool = False
    dtype: torch.dtype = torch.float32
    takes_norms: bool = False
    refusal: str = "whole on each rank"


def momentum(named: Named) -> Optimizer:
    return SGD(named, RATE, momentum=0.5)


def multitask(named: Named) -> Optimizer:
    return ls.MultitaskOptimizerWrapper(momentum(named))


TOLERANCES = {torch.float32: 1e-6, torch.bfloat16: 2.0**-7}
"""What another order of additions may change in weights of about 1.

A sum of two ranks' terms in bfloat16 is rounded to 8 bits.
"""


def assert_close(
    got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float
) -> None:
    assert got.keys() == expected.keys()
    for name, value in got.items():
        torch.testing.assert_close(
            value, expected[name], rtol=0, atol=tolerance, msg=lambda m, n=name: n + m
        )
