"""What a worker saves: its commit too, and what cannot be loaded changes nothing."""

from __future__ import annotations

import copy
import io

import numpy as np
import pytest
import torch
from torch import nn

from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, train

COMMITS = ["gradient", "delta"]


def worker(commit="gradient", period=3, name="SGD momentum"):
    """Return a model that has taken four steps, and the optimizer of its worker."""
    model, getter = TwoHeads(), AGNCustomGetter("cpu")
    optimizer = ALL[name](list(zip("012345", getter(model), strict=True)))
    made = AGNOptimizer(optimizer, 1, getter, period, commit=commit)
    train(model, made, "++++")
    return model, made


def assert_refuses(made: AGNOptimizer, saved, told: str) -> None:
    before = str(made.state_dict())
    with pytest.raises(ValueError, match=told):
        made.load_state_dict(saved)
    assert str(made.state_dict()) == before


@pytest.mark.parametrize("ours", COMMITS)
@pytest.mark.parametrize("saved", COMMITS)
def test_a_state_of_the_other_commit_is_refused(saved, ours) -> None:
    state, (_, made) = worker(saved)[1].state_dict(), worker(ours)
    if saved == ours:
        made.load_state_dict(state)
    else:
        told = f"a state of commit='{ours}', got one of '{saved}'"
        assert_refuses(made, state, told)


def test_a_state_that_does_not_say_its_commit_is_one_of_mean_gradients() -> None:
    saved = worker()[1].state_dict()
    for group in saved["param_groups"]:
        del group["agn/delta"]
    worker()[1].load_state_dict(copy.deepcopy(saved))
    assert_refuses(worker("delta")[1], saved, "commit='delta', got one of 'gradient'")


@pytest.mark.parametrize("commit", COMMITS)
def test_the_state_of_a_bare_optimizer_is_taken_with_any_commit(commit) -> None:
    model = TwoHeads()
    bare = ALL["SGD momentum"](model.parameters())
    train(model, bare, "+")
    model, made = worker(commit)
    made.load_state_dict(bare.state_dict())
    train(model, made, "++")
    assert made.local_step == 6


def change(key, value):
    def changed(saved) -> None:
        saved["state"][2][key] = value

    return changed


def drop(key):
    return lambda saved: saved["state"][2].pop(key)


def number(key, value):
    return lambda saved: [g.update({key: value}) for g in saved["param_groups"]]


WRONG = {
    "accumulator": (change("agn/accumulator", torch.ones(7)), r"\[2, 4\] for '2', got"),
    "no accumulator": (drop("agn/accumulator"), "'agn/accumulator' .* got None"),
    "center": (change("agn/center", torch.ones(7)), r"'agn/center' of shape \[2, 4\]"),
    "no center": (drop("agn/center"), "'agn/center' .* got None"),
    "no mark": (drop("agn/pushed"), "'agn/pushed' .* got None"),
    "slot of the center": (
        change("agn/center/momentum_buffer", torch.ones(7)),
        r"'momentum_buffer' of shape \[2, 4\]",
    ),
    "period 0": (number("agn/communication_period", 0), "period: expected an integer"),
    "period x": (number("agn/communication_period", "x"), "period: expected an int"),
    "local step": (number("agn/local_step", -1), "local_step: expected .* >= 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_loaded_is_one_sentence_and_changes_nothing(name) -> None:
    spoil, told = WRONG[name]
    saved = copy.deepcopy(worker()[1].state_dict())
    spoil(saved)
    assert_refuses(worker()[1], saved, told)


def test_a_period_of_numpy_is_saved_as_a_number_of_python() -> None:
    file = io.BytesIO()
    torch.save(worker(period=np.int64(2))[1].state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    made = worker(period=5)[1]
    made.load_state_dict(saved)
    assert made.communication_period == 2


@pytest.mark.parametrize("name", ["SGD", "SGD momentum", "Adam", "TF1 Adam"])
@pytest.mark.parametrize("commit", COMMITS)
def test_a_layer_that_is_unfrozen_and_handed_over_again_is_shared(name, commit) -> None:
    models, workers, center = [], [], None
    for _ in range(2):
        model = nn.Linear(2, 1)
        model.bias.requires_grad_(False)
        getter = AGNCustomGetter("cpu", center=center)
        center = getter.center
        optimizer = ALL[name](getter(model))
        models.append(model)
        workers.append(AGNOptimizer(optimizer, 2, getter, 1, commit=commit))

    def step(number: int) -> None:
        workers[number].zero_grad()
        models[number](torch.ones(1, 2)).sum().backward()
        workers[number].step()

    step(0), step(1)
    for model in models:
        model.bias.requires_grad_(True)
    with pytest.raises(KeyError, match="hand it to the getter first, and again if it"):
        step(0)
    for model, each in zip(models, workers, strict=True):
        each.custom_getter(model)
    start = center.parameters["bias"].item()
    for number in (0, 1):
        step(number)
        assert models[number].bias.item() == center.parameters["bias"].item()
    assert center.parameters["bias"].item() < start - 0.1
    saved = copy.deepcopy(workers[1].state_dict())
    workers[1].load_state_dict(saved)


def test_a_fresh_worker_has_no_state_by_which_checkpoints_know_it() -> None:
    getter = AGNCustomGetter("cpu")
    inner = ALL["SGD momentum"](list(zip("012345", getter(TwoHeads()), strict=True)))
    assert not AGNOptimizer(inner, 1, getter, 3).state
