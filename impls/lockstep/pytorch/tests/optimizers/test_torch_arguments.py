"""What constructors take as torch does: ``lr=``, and the parameters first."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch

EXTRA: dict[str, dict[str, Any]] = {
    "AdagradOptimizer": {},
    "AdamOptimizer": {},
    "AdamWOptimizer": {"weight_decay": 0.1},
    "FtrlOptimizer": {},
    "GradientDescentOptimizer": {},
    "MomentumOptimizer": {"momentum": 0.5},
    "NovoGrad": {},
    "RMSPropOptimizer": {},
}
every = pytest.mark.parametrize("name", EXTRA)


def weight() -> Parameter:
    return Parameter(torch.ones(2))


@every
def test_lr_is_the_rate(name: str) -> None:
    made = getattr(pytorch, name)([weight()], lr=0.25, **EXTRA[name])
    assert made.param_groups[0]["lr"] == 0.25


@every
def test_two_names_for_one_rate_are_one_sentence(name: str) -> None:
    make, both = getattr(pytorch, name), {"lr": 0.25, "learning_rate": 0.5}
    with pytest.raises(TypeError, match=f"{name}: expected one rate, got both"):
        make([weight()], **both, **EXTRA[name])


def test_a_rate_by_its_place_is_a_rate_too() -> None:
    with pytest.raises(TypeError, match="AdamOptimizer: expected one rate, got both"):
        pytorch.AdamOptimizer([weight()], 0.1, lr=0.25)


@every
@pytest.mark.parametrize("arguments", [(0.1,), (0.1, 0.9), (1, 0.9, 0.5)], ids=str)
def test_a_number_in_place_of_the_parameters_is_one_sentence(
    name: str, arguments: tuple[Any, ...]
) -> None:
    expected = rf"{name}: params: expected the parameters.*, got {arguments[0]}; put mo"
    with pytest.raises(TypeError, match=expected):
        getattr(pytorch, name)(*arguments)
