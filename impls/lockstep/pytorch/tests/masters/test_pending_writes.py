"""Weights and masters that were written since the last step, when others happen."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch.tests.masters.models import halves, wrapped_weight


def added(pair):
    _, optimizer = pair
    optimizer.add_param_group({"params": [("other", Parameter(torch.ones(3).half()))]})
    return pair


def pickled(pair):
    return pickle.loads(pickle.dumps(pair))


each_event = pytest.mark.parametrize("event", [added, copy.deepcopy, pickled])


def written(weight, value):
    with torch.no_grad():
        weight.fill_(value)


def step(weight, optimizer):
    weight.grad = torch.ones_like(weight)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()


def pair_after(dtype, steps):
    """Return a weight and its optimizer of rate 1 after some steps."""
    weight = Parameter(torch.zeros(2, dtype=dtype))
    optimizer = wrapped_weight(weight, lr=1.0)
    for _ in range(steps):
        step(weight, optimizer)
    return weight, optimizer


@halves
@each_event
@pytest.mark.parametrize("steps", [0, 2])
def test_a_loaded_weight_is_trained_on(dtype, event, steps):
    weight, optimizer = pair = pair_after(dtype, steps)
    written(weight, 7)
    weight, optimizer = event(pair)
    step(weight, optimizer)
    assert weight.tolist() == optimizer.master(weight).tolist() == [6, 6]


@each_event
@pytest.mark.parametrize("steps", [0, 2])
def test_a_written_master_is_trained_on(event, steps):
    weight, optimizer = pair = pair_after(torch.float16, steps)
    written(optimizer.master(weight), 7)
    weight, optimizer = event(pair)
    step(weight, optimizer)
    assert weight.tolist() == optimizer.master(weight).tolist() == [6, 6]


def test_masters_keep_their_digits_when_a_group_is_added():
    weight, optimizer = pair = pair_after(torch.float16, 0)
    written(optimizer.master(weight), 1 + 2.0**-14)
    step(*pair)
    added(pair)
    step(*pair)
    assert optimizer.master(weight).tolist() == [2.0**-14 - 1] * 2
