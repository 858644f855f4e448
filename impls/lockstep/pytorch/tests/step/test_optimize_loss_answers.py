"""What a step of optimize_loss takes and gives: extras, a fixed rate, its repr."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import Parameter

from lockstep.errors import RateFunctionError
from lockstep.interface import NO_STEP
from lockstep.pytorch import optimize_loss


def stepping(loss: Any, weight: Parameter, rate: Any = 0.5, **options: Any) -> Any:
    return optimize_loss(loss, "SGD", {}, rate, [weight], **options)


@pytest.mark.parametrize("options", [{}, {"iter_size": 2}, {"dtype": "mixed"}], ids=str)
def test_a_loss_with_extras_makes_the_step_return_a_tuple(options: Any) -> None:
    weight = Parameter(torch.tensor([2.0]))

    def loss(name: str) -> tuple[Any, ...]:
        value = weight.square().sum()
        return value, value * 3, name

    step = stepping(loss, weight, **options)
    for expected in (4.0, 0.0) if "iter_size" not in options else (4.0, 4.0, 0.0):
        value, triple, name = step("a batch")
        assert (value.item(), triple.item(), name) == (
            expected,
            3 * expected,
            "a batch",
        )
        assert not value.requires_grad
        assert not triple.requires_grad


def test_tensors_inside_of_extras_keep_no_graph() -> None:
    weight = Parameter(torch.tensor([2.0]))

    def loss() -> tuple[Any, ...]:
        value = weight.square().sum()
        return value, {"parts": [value * 3, "a name"]}

    _, extras = stepping(loss, weight)()
    triple, name = extras["parts"]
    assert (triple.item(), triple.requires_grad, name) == (12.0, False, "a name")


def test_an_empty_tuple_is_no_loss() -> None:
    weight = Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="loss: expected a loss, or a tuple"):
        stepping(lambda: (), weight)()


def test_a_number_is_a_rate_that_never_changes() -> None:
    weight = Parameter(torch.tensor([2.0]))
    step = stepping(lambda: weight.sum(), weight, rate=0.5)
    step()
    step()
    assert (weight.item(), step.learning_rate) == (1.0, 0.5)


def test_what_is_no_rate_is_refused_naming_both_kinds_of_rate() -> None:
    weight = Parameter(torch.ones(1))
    for wrong in (float("nan"), True, "poly_decay", None):
        with pytest.raises(RateFunctionError, match="the rate, or a number, got"):
            stepping(lambda: weight.sum(), weight, rate=wrong)


def test_before_the_first_call_the_last_step_is_that_there_was_none() -> None:
    weight = Parameter(torch.ones(1))
    step = stepping(lambda: weight.sum(), weight)
    assert step.last_step == NO_STEP
    step()
    step.load_state_dict(step.state_dict())
    assert step.last_step == NO_STEP


def test_the_repr_is_one_line_with_optimizer_steps_rate_and_stages() -> None:
    weight = Parameter(torch.ones(1))
    step = stepping(
        lambda: weight.sum(), weight, dtype="mixed", clip_gradients=1.0, loss_scaling=8
    )
    step()
    assert repr(step) == (
        "optimize_loss(GradientDescentOptimizer, 1 variable; step 1, rate 0.5; "
        + " -> ".join(step.pipeline)
        + ")"
    )


def test_each_micro_batch_updates_the_rows_that_it_names() -> None:
    table = torch.nn.Embedding(4, 1, sparse=True)
    torch.nn.init.zeros_(table.weight)

    def loss(rows: list[int]) -> torch.Tensor:
        return (table(torch.tensor(rows)) * torch.tensor([[2.0], [4.0]])).sum()

    step = stepping(loss, table.weight, rate=1.0, iter_size=2)
    step([0, 1])
    step([3, 1])
    assert table.weight.ravel().tolist() == [-1.0, -4.0, 0.0, -1.0]
