"""Arguments of ``optimize_loss`` for PyTorch that are mistaken, and their sentences."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import Parameter
from torch.optim.lr_scheduler import StepLR

from lockstep import pytorch as ls
from lockstep.messages.tests.step_mistakes import mistakes

INPUTS = torch.ones(4, 2)


def step_of(model, /, **options):
    given = {"optimizer": "SGD", "optimizer_params": None, "model": model}
    given |= {"learning_rate_decay_fn": lambda step: 0.1}
    return ls.optimize_loss(lambda x: model(x).sum(), **{**given, **options})


weight = Parameter(torch.ones(3))
REFUSED = [
    *mistakes(ls, weight),
    ({"learning_rate_decay_fn": "poly_decay"}, TypeError, "got 'poly_decay'"),
    ({"learning_rate_decay_fn": StepLR}, TypeError, "StepLR, which needs step_size"),
    ({"learning_rate_decay_fn": lambda: 0.1}, TypeError, "does not take the step"),
    ({"var_list": weight}, ValueError, "var_list.*a Parameter; put it into a list"),
    ({"var_list": [("w", 3)]}, ValueError, r"var_list.*got \(str, int\)"),
    ({"var_list": [weight, weight]}, ValueError, r"var_list.*of shape \[3\] twice"),
    ({"reduction": ls.VariableClippingOptimizer}, ValueError, "no instance"),
    ({"optimizer": lambda: None}, TypeError, "learning_rate= or lr="),
    (
        {"optimizer": torch.optim.SGD, "optimizer_params": {"lr": 0.1}},
        TypeError,
        "let learning_rate_decay_fn return it",
    ),
    ({"skip_update_ph": 0, "iter_size": 2}, ValueError, "a 0-d bool"),
    ({"model": "linear"}, ValueError, "parameters that require a gradient, got a str"),
    ({"model": nn.ReLU()}, ValueError, "got a ReLU without any"),
]


@pytest.mark.parametrize(
    ("options", "error", "words"), REFUSED, ids=[row[2] for row in REFUSED]
)
def test_a_common_mistake_is_told_in_one_sentence(options, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        step_of(nn.Linear(2, 1), **options)
    assert str(caught.value).startswith("optimize_loss: ")


def test_a_frozen_model_has_nothing_to_train() -> None:
    with pytest.raises(ValueError, match="require a gradient, got a Linear without"):
        step_of(nn.Linear(2, 1).requires_grad_(False))


def test_a_model_in_distributed_data_parallel_is_refused(tmp_path) -> None:
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/ranks"
    )
    try:
        model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
        with pytest.raises(ValueError, match=r"model\.module and on_horovod=True"):
            step_of(model)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("flag", ["False", 2, torch.tensor([True, False])], ids=str)
@pytest.mark.parametrize("asked", [False, True], ids=["given", "returned"])
def test_a_flag_that_is_none_adds_nothing(flag, asked) -> None:
    step = step_of(nn.Linear(2, 1), iter_size=2)
    with pytest.raises(ValueError, match="a bool, a 0-d bool"):
        step(INPUTS, skip_update=(lambda: flag) if asked else flag)
    assert step.micro_step == 0 and step.accumulators == [None, None]


@pytest.mark.parametrize("flag", [True, torch.tensor(True)], ids=["bool", "0-d"])
def test_a_bool_and_a_tensor_of_one_say_that_a_call_only_adds(flag) -> None:
    step = step_of(nn.Linear(2, 1), iter_size=1 + 1, skip_update_ph=flag)
    step(INPUTS), step(INPUTS), step(INPUTS)
    assert (step.micro_step, int(step.global_step)) == (3, 0)


def part_of(model):
    return torch.optim.SGD([model.weight], lr=0.1)


def test_an_optimizer_of_a_part_of_the_model_is_refused() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match="got one without bias; pass var_list"):
        step_of(model, optimizer=part_of(model))
    assert step_of(model, optimizer=part_of(model), model=None).parameters


def test_an_optimizer_of_more_than_the_model_is_refused() -> None:
    model = nn.Linear(2, 1)
    more = torch.optim.SGD([*model.parameters(), weight], lr=0.1)
    with pytest.raises(ValueError, match="got one with 1 others"):
        step_of(model, optimizer=more)


def test_an_optimizer_of_a_part_trains_it_where_it_is_listed() -> None:
    model = nn.Linear(2, 1)
    step = step_of(model, optimizer=part_of(model), var_list=[model.weight])
    assert step.names == ["weight"]


def test_an_optimizer_without_the_frozen_parameters_is_taken() -> None:
    model = nn.Linear(2, 1)
    model.bias.requires_grad_(False)
    assert step_of(model, optimizer=part_of(model)).names == ["weight"]


def in_groups(parameters, lr):
    """Decay matrices, and nothing else."""
    matrices = [p for p in parameters if p.dim() > 1]
    others = [p for p in parameters if p.dim() <= 1]
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=lr, weight_decay=0.1)


def test_a_function_chooses_groups_among_bare_parameters() -> None:
    model = nn.Linear(2, 1)
    step = step_of(model, optimizer=in_groups)
    step(INPUTS)
    groups = step.optimizer.param_groups
    assert [group["param_names"] for group in groups] == [["weight"], ["bias"]]


def test_a_stack_that_a_function_made_speaks_of_parameters_by_name() -> None:
    def stack(parameters, learning_rate):
        sgd = ls.GradientDescentOptimizer(parameters, learning_rate)
        return ls.MultitaskOptimizerWrapper(sgd)

    model = nn.Linear(2, 1)
    step = ls.optimize_loss(
        lambda: 0 * model.weight.sum() + model.bias.sum(),
        stack,
        None,
        lambda step: 0.1,
        model=model,
    )
    step()
    assert step.last_step.skipped == ("weight",)


def test_a_function_that_leaves_a_parameter_out_is_refused() -> None:
    def some(parameters, lr):
        return torch.optim.SGD(parameters[:1], lr=lr)

    with pytest.raises(ValueError, match="without bias"):
        step_of(nn.Linear(2, 1), optimizer=some)


@pytest.mark.parametrize("got", [3, nn.Linear(2, 1), ls.NovoGrad], ids=repr)
def test_what_is_no_optimizer_has_no_pipeline(got) -> None:
    with pytest.raises(TypeError, match="pass the object that takes the steps"):
        ls.pipeline_of(got)


def test_the_pipeline_of_a_step_is_its_own() -> None:
    step = step_of(nn.Linear(2, 1), iter_size=2, clip_gradients=1.0)
    expected = ("accumulate", "norm", "clip", "update")
    assert ls.pipeline_of(step) == step.pipeline == expected
    assert ls.pipeline_of(torch.optim.SGD([weight], lr=0.1)) == ("update",)
