"""Penalties of half-precision weights, taken at their masters."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
import torch
from torch.nn import Parameter

from lockstep.pytorch import (
    MixedPrecisionOptimizerWrapper,
    mp_regularizer_wrapper,
)
from lockstep.pytorch.mixed_precision import REGISTERED
from lockstep.pytorch.tests.half_models import (
    step_on,
    wrapped_weight,
)


@pytest.mark.parametrize(
    "regularizer",
    [
        lambda weight: 1.0,
        lambda weight: None,
        lambda weight: weight.square(),
        lambda weight: weight.detach().sum(),
        lambda weight: Parameter(torch.ones(())),
    ],
    ids=["number", "None", "vector", "detached", "another's"],
)
def test_a_penalty_that_has_no_gradient_is_refused(regularizer):
    weight = Parameter(torch.ones(2).half())
    mp_regularizer_wrapper(regularizer)(weight)
    optimizer = wrapped_weight(weight, loss_scale=16)
    with pytest.raises(TypeError, match="expected a penalty that is a scalar"):
        step_on(weight, optimizer, torch.ones(2))
    assert weight.tolist() == [1.0, 1.0]


class TestRegularizer:
    def test_the_penalty_is_taken_at_the_master_in_float32(self):
        weight = Parameter(torch.full((2,), 1e-4).half())
        l2 = mp_regularizer_wrapper(lambda w: 0.5 * 1e-4 * w.square().sum())
        assert l2(weight) is None
        optimizer = wrapped_weight(weight, loss_scale=16)
        before = optimizer.master(weight).clone()
        step_on(weight, optimizer, torch.zeros(2))
        torch.testing.assert_close(
            before - optimizer.master(weight), before * 1e-4, rtol=1e-3, atol=0
        )

    def test_other_weights_are_regularized_as_usual(self):
        weight = Parameter(torch.ones(2))
        assert mp_regularizer_wrapper(lambda w: w.sum())(weight).item() == 2.0
        assert weight not in REGISTERED

    def test_a_weight_is_not_kept_alive(self):
        weight = Parameter(torch.ones(2).half())
        mp_regularizer_wrapper(lambda w: w.sum())(weight)
        gc.collect()
        alive, count = weakref.ref(weight), len(REGISTERED)
        del weight
        assert alive() is None
        assert len(REGISTERED) == count - 1

    def test_a_sparse_gradient_becomes_dense(self):
        table = torch.nn.Embedding(3, 2, sparse=True).half()
        mp_regularizer_wrapper(lambda w: 0.5 * w.square().sum())(table.weight)
        optimizer = wrapped_weight(table.weight, lr=0.5, loss_scale=2)
        start = optimizer.master(table.weight).clone()
        optimizer.scale_loss(table(torch.tensor([1])).sum()).backward()
        optimizer.step()
        still = torch.tensor([[0.0], [1.0], [0.0]])
        expected = start - 0.5 * (start + still)
        torch.testing.assert_close(optimizer.master(table.weight), expected)

    def test_an_absent_gradient_is_the_penaltys(self):
        one, other = Parameter(torch.ones(2).half()), Parameter(torch.ones(2).half())
        mp_regularizer_wrapper(lambda w: 0.5 * w.square().sum())(one)
        sgd = torch.optim.SGD([one, other], lr=0.5)
        optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
        step_on(other, optimizer, torch.zeros(2))
        assert one.tolist() == [0.5, 0.5]

    @pytest.mark.parametrize("way", ["step", "minimize"])
    def test_a_frozen_weight_stays(self, way):
        one, other = Parameter(torch.ones(2).half()), Parameter(torch.ones(2).half())
        mp_regularizer_wrapper(lambda w: 0.5 * w.square().sum())(one)
        one.requires_grad_(False)
        sgd = torch.optim.SGD([one, other], lr=0.5)
        optimizer = MixedPrecisionOptimizerWrapper(sgd, 4)
        if way == "step":
            step_on(other, optimizer, torch.ones(2))
        else:
            optimizer.minimize(lambda: other.sum())
        assert optimizer.master(one).tolist() == one.tolist() == [1.0, 1.0]
        assert other.tolist() == [0.5, 0.5]

    def test_a_copy_keeps_its_regularizers(self):
        weight = Parameter(torch.ones(2).half())
        mp_regularizer_wrapper(lambda w: 0.5 * w.square().sum())(weight)
        optimizer = wrapped_weight(weight, lr=0.5)
        step_on(weight, optimizer, torch.zeros(2))
        twin, copied = copy.deepcopy((weight, optimizer))
        step_on(twin, copied, torch.zeros(2))
        assert twin.tolist() == [0.25, 0.25]

    def test_what_cannot_be_called_is_refused(self):
        with pytest.raises(TypeError, match="expected a callable of a weight, got str"):
            mp_regularizer_wrapper("l2")
