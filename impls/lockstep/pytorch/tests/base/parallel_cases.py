"""The table of ``docs/data_parallel.md``; its cases are trained in each layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from lockstep import pytorch as ls
from lockstep.pytorch.tests.subjects import TF1, TwoHeads

__all__ = [
    "REFUSED",
    "RIGHT",
    "ROWS",
    "TOLERANCES",
    "Case",
    "Net",
    "Row",
    "assert_close",
]

Named = list[tuple[str, Tensor]]
Pairs = list[tuple[Tensor | None, Tensor]]
RATE = 0.125
LARC = {"larc_eta": 0.25}


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


class Row(NamedTuple):
    """A row of the table: what happens in each layout, and cases that show it."""

    cells: tuple[str, str, str]
    cases: dict[str, Case]


def momentum(named: Named) -> Optimizer:
    return SGD(named, RATE, momentum=0.5)


def scaled(named: Named, **options: Any) -> Optimizer:
    scale = ls.DynamicLossScale(8.0, 2)
    return ls.MixedPrecisionLossScaleOptimizer(momentum(named), scale, **options)


def fused(named: Named) -> Optimizer:
    adam = Adam(named, RATE, fused=True)
    scale = ls.DynamicLossScale(8.0, 2)
    return ls.MixedPrecisionLossScaleOptimizer(adam, scale, clip_norm=0.5)


def masters(named: Named, scale: Any = 8.0, **options: Any) -> Optimizer:
    return ls.MixedPrecisionOptimizerWrapper(Adam(named, RATE), scale, **options)


def masters_of_logmax(named: Named) -> Optimizer:
    return masters(named, ls.AutomaticLossScaler("LogMax"), clip_norm=0.5)


def masters_around_wrappers(named: Named) -> Optimizer:
    inner = ls.MultitaskOptimizerWrapper(rows(named, {"body.weight": [1]}))
    return ls.MixedPrecisionOptimizerWrapper(inner, "dynamic")


def rows(named: Named, limits: dict[str, list[int]]) -> Optimizer:
    return ls.VariableClippingOptimizer(momentum(named), limits, 0.5)


def agn(named: Named) -> Optimizer:
    getter = ls.AGNCustomGetter("cpu")
    return ls.AGNOptimizer(SGD(getter([p for _, p in named]), RATE), 1, getter, 2)


def capturable(named: Named) -> Optimizer:
    adam = Adam(named, RATE, fused=True)
    return ls.MixedPrecisionLossScaleOptimizer(adam, 8.0, capturable=True)


def clipped_pairs(pairs: Pairs) -> Pairs:
    return ls.clip_gradients_by_global_norm(pairs, 0.5)[0]


def clipped_by_norm(pairs: Pairs) -> Pairs:
    return ls.clip_gradients_by_norm(pairs, 0.5)


def clipped_as_original(pairs: Pairs) -> Pairs:
    return ls.clip_gradients_by_norm(pairs, 0.5, strict=True)


def clipped_tensors(pairs: Pairs) -> Pairs:
    clipped, _ = ls.clip_by_global_norm([gradient for gradient, _ in pairs], 0.5)
    return list(zip(clipped, [parameter for _, parameter in pairs], strict=True))


def larc(pairs: Pairs) -> Pairs:
    return ls.post_process_gradients(pairs, [], RATE, None, LARC)


def moved_scales(pairs: Pairs) -> Pairs:
    """Multiply by what loss scales find in the gradients."""
    scale = ls.DynamicLossScale(8.0, 1)
    assert scale.update([gradient for gradient, _ in pairs])[1]
    has_nan, largest = ls.AutomaticLossScaler.check_grads(pairs)
    factor = float(scale()) / (16 + float(largest)) / (1 + float(has_nan))
    return [(gradient * factor, parameter) for gradient, parameter in pairs]


def multitask(named: Named) -> Optimizer:
    return ls.MultitaskOptimizerWrapper(momentum(named))


MASTERS = {"dtype": torch.bfloat16}
NORMS = {"takes_norms": True}
RIGHT, REFUSED = "right", "refused"
EVERYWHERE = RIGHT, RIGHT, RIGHT
WHOLE_ONLY = RIGHT, REFUSED, REFUSED
STRICT = {"refusal": "leave strict=True out"}
ROWS: dict[str, Row] = {
    "`MultitaskOptimizerWrapper`": Row(
        EVERYWHERE,
        {"multitask": Case(lambda p: ls.MultitaskOptimizerWrapper(Adam(p, RATE)))},
    ),
    "`MixedPrecisionLossScaleOptimizer`": Row(
        EVERYWHERE,
        {
            "scaled": Case(scaled),
            "scaled, clipped": Case(lambda p: scaled(p, clip_norm=0.5), **NORMS),
            "scaled, fused": Case(fused, **NORMS),
            "scaled, by hand": Case(scaled, by_hand=True),
        },
    ),
    "`MixedPrecisionOptimizerWrapper`": Row(
        EVERYWHERE,
        {
            "masters": Case(masters, **MASTERS),
            "masters, by hand": Case(masters, by_hand=True, **MASTERS),
            "masters of LogMax": Case(masters_of_logmax, **MASTERS, **NORMS),
            "masters around wrappers": Case(masters_around_wrappers, **MASTERS),
        },
    ),
    "`VariableClippingOptimizer`, rows whole": Row(
        EVERYWHERE,
        {"rows": Case(lambda p: rows(p, {"body.weight": [1], "b.weight": [1]}))},
    ),
    "`VariableClippingOptimizer`, rows split": Row(
        WHOLE_ONLY,
        {
            "columns": Case(
                lambda p: rows(p, {"body.weight": [0]}),
                refusal="expected the axes [0] of 'body.weight' whole on each rank",
            )
        },
    ),
    "`NovoGrad`": Row(
        EVERYWHERE,
        {"NovoGrad": Case(lambda p: ls.NovoGrad(p, RATE, weight_decay=0.5), **NORMS)},
    ),
    "the optimizers of TensorFlow 1": Row(
        EVERYWHERE, {name: Case(make) for name, make in TF1.items()}
    ),
    "`clip_gradients_by_global_norm`, `clip_by_global_norm`, "
    "`clip_gradients_by_norm`": Row(
        EVERYWHERE,
        {
            "clipped pairs": Case(multitask, clipped_pairs, **NORMS),
            "clipped tensors": Case(multitask, clipped_tensors, **NORMS),
            "clipped by norm": Case(multitask, clipped_by_norm, **NORMS),
        },
    ),
    "`post_process_gradients` with LARC": Row(
        EVERYWHERE, {"LARC": Case(multitask, larc, **NORMS)}
    ),
    "`DynamicLossScale`, `AutomaticLossScaler`": Row(
        EVERYWHERE, {"loss scales": Case(multitask, moved_scales)}
    ),
    "`strict=True`, `capturable=True`": Row(
        WHOLE_ONLY,
        {
            "strict": Case(
                lambda p: ls.MultitaskOptimizerWrapper(momentum(p), strict=True),
                **STRICT,
            ),
            "strict rule": Case(
                lambda p: ls.AdamOptimizer(p, RATE, strict=True), **STRICT
            ),
            "strict norm": Case(multitask, clipped_as_original, **STRICT),
            "capturable": Case(capturable, refusal="leave capturable=True out"),
        },
    ),
    "`AGNOptimizer`": Row(WHOLE_ONLY, {"agn": Case(agn)}),
}
"""Rows of the table by name; DDP, FSDP2 and tensor parallelism are its columns."""
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
