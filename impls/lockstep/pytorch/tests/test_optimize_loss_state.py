"""A step object that is saved in the middle of a batch, and resumed, goes on."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch import nn

from lockstep.pytorch import OPTIMIZER_CLS_NAMES, optimize_loss
from lockstep.pytorch.lr_policies import poly_decay
from lockstep.pytorch.tests.ranks import new_processes

PARAMS = {"Momentum": {"momentum": 0.5}, "AdamW": {"weight_decay": 0.1}}
SETTINGS = {
    "clipped": {"clip_gradients": 0.5},
    "masters": {
        "dtype": "mixed",
        "loss_scaling": "Backoff",
        "loss_scaling_params": {"step_window": 1, "scale_max": 2.0**10},
        "larc_params": {"larc_eta": 0.05},
    },
    "logmax": {"dtype": "mixed", "loss_scaling": "LogMax"},
}
CASES = list(product(OPTIMIZER_CLS_NAMES, SETTINGS))
BEFORE, AFTER = 5, 6
"""Calls, three of which make a step: it is saved with two micro-batches added up."""


class Model(nn.Module):
    """A sparse table and a layer; the second input says how large the loss is."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(4, 2, sparse=True, dtype=dtype)
        self.layer = nn.Linear(2, 2, dtype=dtype)

    def loss(self, ids: torch.Tensor, factor: float) -> torch.Tensor:
        return factor * self.layer(self.table(ids)).float().square().mean()


def started(optimizer: str, settings: str):
    """Return a model and its step."""
    chosen = SETTINGS[settings]
    model = Model(torch.float16 if "dtype" in chosen else torch.float32)
    step = optimize_loss(
        model.loss,
        optimizer,
        PARAMS.get(optimizer, {}),
        lambda step: poly_decay(step, 0.1, 10, warmup_steps=2),
        model=model,
        iter_size=3,
        **chosen,
    )
    return model, step


def advance(step, calls: range) -> None:
    """Take calls; the loss of the eighth overflows if that is noticed."""
    worst = float("inf") if "finite check" in step.pipeline else 4.0
    for k in calls:
        step(torch.tensor([k % 4, 3]), worst if k == 7 else 1.0)


def everything(model, step):
    """Return weights and state, sums made dense."""
    sums = [None if t is None else t.to_dense() for t in step.accumulators]
    return model.state_dict(), {**step.state_dict(), "accumulators": sums}


def resume(folder: Path) -> None:
    """Go on with every case that was saved; runs in a process of its own."""
    for k, case in enumerate(CASES):
        saved = torch.load(folder / f"{k}.pt", weights_only=True)
        model, step = started(*case)
        model.load_state_dict(saved["model"])
        step.load_state_dict(saved["step"])
        advance(step, range(BEFORE, BEFORE + AFTER))
        torch.save(everything(model, step), folder / f"{k}.after.pt")


@pytest.fixture(scope="module")
def resumed(tmp_path_factory):
    """What went straight on, and what was resumed in a fresh process."""
    folder, straight = tmp_path_factory.mktemp("steps"), []
    for k, case in enumerate(CASES):
        model, step = started(*case)
        advance(step, range(BEFORE))
        saved = {"model": model.state_dict(), "step": step.state_dict()}
        torch.save(saved, folder / f"{k}.pt")
        advance(step, range(BEFORE, BEFORE + AFTER))
        straight.append(everything(model, step))
    process = new_processes().Process(target=resume, args=(folder,))
    process.start()
    process.join(120)
    assert process.exitcode == 0
    after = [torch.load(folder / f"{k}.after.pt") for k in range(len(CASES))]
    return dict(zip(CASES, zip(straight, after, strict=True), strict=True))


def leaves(nest, path=""):
    """Yield whatever is in nested dicts and lists, with its place."""
    if isinstance(nest, dict | list | tuple):
        pairs = nest.items() if isinstance(nest, dict) else enumerate(nest)
        for key, value in pairs:
            yield from leaves(value, f"{path}/{key}")
    elif isinstance(nest, torch.Tensor):
        yield path, (nest.dtype, nest.tolist())
    else:
        yield path, nest


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_a_resumed_step_goes_on_to_the_bit(resumed, case) -> None:
    straight, after = (dict(leaves(side)) for side in resumed[case])
    assert after == straight
    assert straight["/1/global_step"] in (2, 3) and straight["/1/micro_step"] == 2


def test_what_is_saved_is_not_moved_by_later_steps() -> None:
    _, step = started("Momentum", "clipped")
    advance(step, range(1))
    saved = step.state_dict()
    first = saved["accumulators"][1].clone()
    advance(step, range(1, 3))
    assert torch.equal(saved["accumulators"][1], first)


CHANGES = {
    "a key": lambda saved: saved.pop("micro_step"),
    "another iter_size": lambda saved: saved.update(micro_step=1, iter_size=2),
    "too few": lambda saved: saved["accumulators"].pop(),
    "a shape": lambda saved: saved["accumulators"].__setitem__(1, torch.ones(7)),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_state_of_something_else_is_refused_and_nothing_changes(change) -> None:
    _, step = started("Adam", "clipped")
    saved = step.state_dict()
    change(saved)
    advance(step, range(4))
    before = repr(step.state_dict())
    with pytest.raises(ValueError, match="state"):
        step.load_state_dict(saved)
    assert repr(step.state_dict()) == before


def stepped(optimizer, arguments, width=2, **options):
    """Return a step of a layer, taken once."""
    layer = nn.Linear(width, 1)
    step = optimize_loss(
        lambda: layer(torch.ones(width)).sum(),
        optimizer,
        arguments,
        lambda step: 0.1,
        model=layer,
        **options,
    )
    step()
    return step


def test_sums_of_another_iter_size_are_refused() -> None:
    saved = stepped("SGD", {}, iter_size=4).state_dict()
    with pytest.raises(ValueError, match="iter_size 4"):
        stepped("SGD", {}, iter_size=2).load_state_dict(saved)
    with pytest.raises(ValueError, match="iter_size 4"):
        stepped("SGD", {}).load_state_dict(saved)


def test_a_state_without_sums_goes_on_with_another_iter_size() -> None:
    step = stepped("SGD", {}, iter_size=2)
    step.load_state_dict(stepped("SGD", {}).state_dict())
    assert (int(step.global_step), step.micro_step) == (1, 0)
