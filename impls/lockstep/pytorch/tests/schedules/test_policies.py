"""Policies at tensor steps, and the scheduler that writes them."""

from __future__ import annotations

import copy
import functools
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, SequentialLR

from harness.tests.script_process import Request
from harness.tests.shared_processes import Processes
from lockstep.errors import OutOfRangeError
from lockstep.pytorch import (
    MomentumOptimizer,
    MultitaskOptimizerWrapper,
    PolicyLR,
    lr_policies,
)

ARGUMENTS: dict[str, dict[str, Any]] = {
    "fixed_lr": {},
    "piecewise_constant": {"boundaries": [3, 9], "decay_rates": [0.5, 0.3]},
    "exp_decay": {"decay_steps": 4, "decay_rate": 0.7, "use_staircase_decay": False},
    "poly_decay": {"decay_steps": 3000, "power": 1.7, "warmup_steps": 5},
    "cosine_decay": {"decay_steps": 2100, "begin_decay_at": 3, "min_lr": 0.02},
    "inv_poly_decay": {"decay_steps": 2100, "min_lr": 0.02, "warmup_steps": 3},
    "transformer_policy": {"d_model": 16, "warmup_steps": 600, "dtype": "float16"},
}


def optimizer(*rates: Any) -> torch.optim.Optimizer:
    groups = [{"params": [torch.nn.Parameter(torch.ones(2))], "lr": r} for r in rates]
    return torch.optim.SGD(groups, lr=0.1)


def walk(made: torch.optim.Optimizer, scheduler: LRScheduler, steps: int) -> list:
    seen = []
    for _ in range(steps):
        seen.append([group["lr"] for group in made.param_groups])
        made.step()
        scheduler.step()
    return seen


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_tensor_step_gives_a_tensor_of_the_same_rate(strict: bool, name: str) -> None:
    policy = getattr(lr_policies, name)
    policy = functools.partial(policy, strict=strict, **ARGUMENTS[name])
    for step in (0, 1, 3, 4, 9, 17, 70000):
        rate = policy(torch.tensor(step), learning_rate=0.1)
        if name != "fixed_lr":
            dtype = torch.float16 if name == "transformer_policy" else torch.float32
            assert (rate.dtype, rate.shape) == (dtype, ())
        assert float(rate) == policy(step, learning_rate=0.1)


def test_an_ambiguous_tensor_step_is_refused() -> None:
    step = torch.tensor(5)
    with pytest.raises(OutOfRangeError, match="sort them"):
        lr_policies.piecewise_constant(step, 1.0, [8, 4], [0.5, 0.1])


@pytest.mark.parametrize("name", ARGUMENTS)
def test_the_rate_at_k_is_that_of_a_walk_of_k_steps(name: str) -> None:
    made = optimizer(0.1, 0.1)
    walked = walk(made, PolicyLR(made, name, **ARGUMENTS[name]), 2100)
    policy = getattr(lr_policies, name)
    for step in (*range(40), *range(1000, 1050), 2047, 2048, 2099):
        assert walked[step] == [policy(step, 0.1, **ARGUMENTS[name])] * 2


@pytest.mark.parametrize("name", ARGUMENTS)
def test_any_step_may_be_asked_for(name: str) -> None:
    made = optimizer(0.1)
    scheduler = PolicyLR(made, name, **ARGUMENTS[name])
    made.step()
    for step in (2000, 3, 1024, 0):
        scheduler.step(step)
        rate = getattr(lr_policies, name)(step, 0.1, **ARGUMENTS[name])
        assert made.param_groups[0]["lr"] == scheduler.get_last_lr()[0] == rate


def test_groups_keep_the_ratio_of_their_rates() -> None:
    made = optimizer(0.5, 0.125)
    seen = walk(made, PolicyLR(made, "poly_decay", decay_steps=4), 5)
    assert seen[2] == [0.25, 0.0625]
    assert seen[4] == [0.0, 0.0]


def test_a_callable_may_be_given_instead_of_a_name() -> None:
    policy = functools.partial(lr_policies.poly_decay, learning_rate=1.0, decay_steps=4)
    for given in (policy, lambda step: policy(step)):
        made = optimizer(0.1, 0.1)
        seen = walk(made, PolicyLR(made, given), 5)
        assert [row[0] for row in seen] == [1.0, 0.75, 0.5, 0.25, 0.0]


def test_it_takes_its_turn_in_a_sequence() -> None:
    made = optimizer(1.0)
    halving = {"decay_steps": 1, "decay_rate": 0.5, "use_staircase_decay": True}
    parts = [
        PolicyLR(made, "poly_decay", decay_steps=4),
        PolicyLR(made, "exp_decay", **halving),
    ]
    seen = walk(made, SequentialLR(made, parts, [3]), 6)
    assert seen == [[1.0], [0.75], [0.5], [1.0], [0.5], [0.25]]


def test_a_rate_in_a_tensor_is_written_in_place() -> None:
    rate = torch.tensor(0.5)
    made = torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], lr=rate)
    walk(made, PolicyLR(made, "poly_decay", decay_steps=4), 2)
    assert made.param_groups[0]["lr"] is rate
    assert rate.item() == 0.25


def test_it_drives_our_wrappers() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    made = MultitaskOptimizerWrapper(MomentumOptimizer([weight], 0.5, 0.9))
    weight.grad = torch.ones(2)
    seen = walk(made, PolicyLR(made, "poly_decay", decay_steps=4), 3)
    assert seen == [[0.5], [0.375], [0.25]]


def test_copies_go_on_alone() -> None:
    made = optimizer(0.5)
    scheduler = PolicyLR(made, "poly_decay", decay_steps=4)
    walk(made, scheduler, 2)
    for twin in (copy.deepcopy(scheduler), pickle.loads(pickle.dumps(scheduler))):
        twin.step()
        assert twin.optimizer.param_groups[0]["lr"] == 0.125
    assert made.param_groups[0]["lr"] == 0.25


RESUME = """
import sys, torch
from lockstep.pytorch import PolicyLR
path, start, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
weight = torch.nn.Parameter(torch.ones(2))
made = torch.optim.SGD([weight], lr=0.3, momentum=0.9)
scheduler = PolicyLR(
    made, "poly_decay", decay_steps=1500, power=1.3, begin_decay_at=700, warmup_steps=90
)
if start:
    saved = torch.load(path, weights_only=True)
    weight.data.copy_(saved["weight"])
    made.load_state_dict(saved["made"])
    scheduler.load_state_dict(saved["scheduler"])
for _ in range(start, stop):
    weight.grad = torch.sin(weight.detach())
    made.step()
    scheduler.step()
state = {"made": made.state_dict(), "scheduler": scheduler.state_dict()}
torch.save({**state, "weight": weight.detach()}, path)
print(made.param_groups[0]["lr"].hex(), *[v.hex() for v in weight.tolist()])
"""


def test_a_run_resumed_in_another_process_is_the_same_run(
    tmp_path: Path, processes: Processes
) -> None:
    script = tmp_path / "resume.py"
    script.write_text(RESUME, "utf-8")

    def run(kind: str, name: str, start: int, stop: int) -> str:
        arguments = [str(tmp_path / name), str(start), str(stop)]
        request = Request(str(script), arguments, str(tmp_path))
        return processes.output_of(kind, ["torch"], request)

    whole = run("torch", "whole", 0, 1300)
    run("torch", "part", 0, 777)
    assert run("torch again", "part", 777, 1300) == whole


@pytest.mark.parametrize(
    ("policy", "arguments", "error", "words"),
    [
        ("pol_decay", {}, ValueError, "did you mean 'poly_decay'"),
        ("poly_decay", {"decay_step": 4}, ValueError, "did you mean 'decay_steps'"),
        ("poly_decay", {}, ValueError, "decay_steps: expected .*, got nothing"),
        ("poly_decay", {"decay_steps": 0}, ValueError, "> 0, got 0"),
        (3, {}, TypeError, "expected the name of a policy or a callable"),
        (lambda step: 0.1, {"decay_steps": 4}, ValueError, "beside a callable"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(
    policy: Any, arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    made = optimizer(0.5)
    with pytest.raises(error, match=words):
        PolicyLR(made, policy, **arguments)
    assert "initial_lr" not in made.param_groups[0]


def test_a_group_added_later_is_refused() -> None:
    made = optimizer(0.5, 0.5)
    scheduler = PolicyLR(made, "poly_decay", decay_steps=4)
    made.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    made.step()
    with pytest.raises(ValueError, match=r"the 2 parameter groups .* got 3"):
        scheduler.step()


def test_a_first_group_without_a_rate_has_no_ratio() -> None:
    with pytest.raises(ValueError, match="a first group with a rate > 0"):
        PolicyLR(optimizer(0.0, 0.5), lambda step: 0.1)


def test_the_wrong_order_of_steps_is_a_warning() -> None:
    scheduler = PolicyLR(optimizer(0.5), "poly_decay", decay_steps=4)
    with pytest.warns(UserWarning, match="expected optimizer.step\\(\\) before it"):
        scheduler.step()


def test_it_walks_as_lambda_lr_does() -> None:
    ours, theirs = optimizer(1.0, 0.5), optimizer(1.0, 0.5)

    def law(step: int) -> float:
        return 1.0 / (1 + step)

    seen = walk(ours, PolicyLR(ours, law), 9)
    assert seen == walk(theirs, LambdaLR(theirs, law), 9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_step_on_the_gpu_is_not_waited_for(name: str) -> None:
    step = torch.tensor(7, device="cuda")
    policy = getattr(lr_policies, name)
    torch.cuda.set_sync_debug_mode("error")
    try:
        rate = policy(step, 0.1, **ARGUMENTS[name])
    finally:
        torch.cuda.set_sync_debug_mode("default")
    if name != "fixed_lr":
        assert rate.device == step.device
    assert float(rate) == policy(7, 0.1, **ARGUMENTS[name])
