"""A state with a mistake in it is refused with nothing changed, or it works."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from lockstep.messages.errors import LockstepError
from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
)
from lockstep.pytorch.tests.masters.models import loss_of, mixed
from lockstep.pytorch.tests.subjects import ALL, TwoHeads, batches

MUTANTS = 10
"""Of each stack; seeds 0, 1, ..."""


def rows(opt):
    limits = [p for p in opt.param_groups[0]["params"] if p.dim() == 2]
    return VariableClippingOptimizer(opt, {limits[0]: [1]}, 0.25)


def scaled(opt, **options):
    scale = DynamicLossScale(4.0, 2, hysteresis=2)
    return MixedPrecisionLossScaleOptimizer(opt, scale, **options)


def masters(opt, scale=None, **options):
    scale = scale or DynamicLossScale(4.0, 2)
    return MixedPrecisionOptimizerWrapper(opt, scale, **options)


def backoff(opt):
    return masters(opt, AutomaticLossScaler("Backoff", {"scale_max": 8.0}))


def logmax(opt):
    return masters(opt, AutomaticLossScaler("LogMax", {"scale_max": 64.0}))


def agn(opt):
    getter = AGNCustomGetter("cpu")
    getter([p for group in opt.param_groups for p in group["params"]])
    return AGNOptimizer(opt, 1, getter, communication_period=2)


STACKS = {
    "agn": (agn,),
    "agn multitask": (agn, MultitaskOptimizerWrapper),
    "masters": (masters,),
    "masters backoff": (backoff,),
    "masters logmax": (logmax,),
    "masters rows multitask": (masters, rows, MultitaskOptimizerWrapper),
    "multitask": (MultitaskOptimizerWrapper,),
    "rows": (rows,),
    "scaled": (scaled,),
    "scaled multitask": (scaled, MultitaskOptimizerWrapper),
}
BASES = [
    "Adam",
    "Adam fused",
    "Adam amsgrad",
    "AdamW",
    "SGD momentum",
    "RMSprop",
    "Adagrad",
    "NAdam",
    "Rprop",
    "ASGD",
    "TF1 Adam",
    "TF1 AdamW",
    "Ftrl",
    "NovoGrad",
]
CAPTURABLE = {
    "masters capturable": (lambda opt: masters(opt, capturable=True),),
    "scaled capturable": (lambda opt: scaled(opt, capturable=True),),
}
CASES = [(stack, base) for stack in STACKS for base in BASES]
CASES += [(stack, base) for stack in CAPTURABLE for base in ("Adam fused", "SGD fused")]


MAKE = ALL | {
    "SGD fused": lambda params: torch.optim.SGD(
        params, lr=0.1, momentum=0.9, fused=True
    ),
}


def junk() -> list[Any]:
    tensors = torch.zeros(7), torch.zeros(()), torch.ones(2, 4), torch.ones(2)
    kinds = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.complex64)
    numbers = None, -1, -5.0, 0, 1, 3, 0.5, float("nan"), float("inf"), 10**400, True
    return [*tensors, *kinds, *numbers, {}, [], (), "x", "loss_scale"]


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a state with a key or position in it."""
    keys = node if isinstance(node, dict) else range(len(node))
    for key in list(keys):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


def mutate(state: dict[str, Any], draw: random.Random) -> str:
    """Make a mistake somewhere in a state, and return what it was."""
    container, key = draw.choice(list(places(state)))
    if draw.random() < 0.3:
        del container[key]
        return f"without {key!r}"
    value = container[key]
    if isinstance(value, torch.Tensor) and draw.random() < 0.5:
        if value.dim():
            kinds = value.double(), value.long(), value.to_sparse()
            value = draw.choice([*kinds, value[:1], value[None]])
        else:
            value = value + 0.5
    elif isinstance(value, list | tuple) and draw.random() < 0.5:
        value = draw.choice([value[1:], [*value, *value[:1]], value[::-1]])
    else:
        value = draw.choice(junk())
    container[key] = value
    return f"{key!r} = {value!r:.60}"


def started(stack: str, base: str):
    has_masters = "masters" in stack
    model = mixed() if has_masters else TwoHeads()
    optimizer = MAKE[base](model.named_parameters())
    for wrap in reversed((STACKS | CAPTURABLE)[stack]):
        optimizer = wrap(optimizer)
    for inputs in batches(3):
        advance(model, optimizer, inputs)
    return model, optimizer


def advance(model, optimizer, inputs) -> None:
    optimizer.zero_grad()
    loss = loss_of(model, inputs)
    scales = hasattr(optimizer, "scale_loss")
    (optimizer.scale_loss(loss) if scales else loss).backward()
    optimizer.step()


def everything(model, optimizer) -> list[Any]:
    """Return copies of all that a load may change."""
    weights = [p.detach().clone() for p in model.parameters()]
    report = str(getattr(optimizer, "loss_scale", None))
    return [weights, report, copy.deepcopy(optimizer.state_dict())]


def equal(left: Any, right: Any) -> bool:
    """Compare nested values, tensors by their bits."""
    if isinstance(left, torch.Tensor):
        return left.dtype == right.dtype and torch.equal(left, right)
    if isinstance(left, dict):
        same = list(left) == list(right)
        return same and all(equal(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("stack", "base"), CASES)
def test_a_mutated_state_is_refused_with_nothing_changed_or_works(stack, base):
    model, optimizer = started(stack, base)
    good, inputs = copy.deepcopy(optimizer.state_dict()), next(batches(1, seed=9))
    refused = 0
    for seed in range(MUTANTS):
        draw = random.Random(f"{stack} {base} {seed}")
        state = copy.deepcopy(good)
        what = mutate(state, draw)
        before = everything(model, optimizer)
        try:
            optimizer.load_state_dict(state)
        except LockstepError as error:
            refused += 1
            assert "expected" in str(error) and "got" in str(error), what
            assert equal(everything(model, optimizer), before), what
            continue
        except Exception as error:
            raise AssertionError(f"{what}: a raw error") from error
        try:
            advance(model, optimizer, inputs)
            _ = optimizer.last_step, optimizer.state_dict()
        except Exception as error:
            raise AssertionError(f"{what}: accepted, but the step failed") from error
        model, optimizer = started(stack, base)
    # Not every mistake is one: but a good part of them must be noticed.
    assert refused >= MUTANTS // 4


def assert_refuses(stack: str, base: str, change, sentence: str) -> None:
    model, optimizer = started(stack, base)
    state, before = copy.deepcopy(optimizer.state_dict()), everything(model, optimizer)
    change(state)
    with pytest.raises(ValueError, match=sentence):
        optimizer.load_state_dict(state)
    assert equal(everything(model, optimizer), before)
    advance(model, optimizer, next(batches(1)))
    assert optimizer.last_step.applied


NUMBERS = [
    ("TF1 Adam", "loss_scale_good_steps", None, "an integer >= 0, got None"),
    ("TF1 Adam", "loss_scale_good_steps", -1, "an integer >= 0, got -1"),
    ("TF1 Adam", "loss_scale_skips", {}, "an integer >= 0, got {}"),
    ("TF1 Adam", "skipped_steps", 0.5, "an integer >= 0, got 0.5"),
    ("TF1 Adam", "loss_scale", None, "a finite number, got None"),
    ("TF1 Adam", "beta2", float("inf"), r"beta2: expected a number in \[0, 1\), got"),
    ("TF1 AdamW", "weight_decay", "x", "weight_decay: expected"),
    ("TF1 Adam", "beta1_power", 2.0, r"beta1_power in \[0, 1\], got 2.0"),
    ("Adam", "lr", -5.0, "that Adam can use, got some with which it fails .*-5.0"),
    ("AdamW", "betas", (0.9, 1.5), "that AdamW can use, got some .*1.5"),
    ("AdamW", "eps", None, "that AdamW can use"),
    ("SGD momentum", "dampening", [], "that SGD can use"),
]


@pytest.mark.parametrize(("base", "key", "value", "sentence"), NUMBERS)
def test_numbers_that_a_constructor_refuses_are_refused(base, key, value, sentence):
    def change(state):
        state["param_groups"][0][key] = value

    assert_refuses("scaled multitask", base, change, sentence)


@pytest.mark.parametrize("stack", ["agn", "multitask", "scaled"])
@pytest.mark.parametrize(
    ("base", "left"), [("TF1 Adam", []), ("Adam", ["step"]), ("AdamW", ["exp_avg"])]
)
def test_an_entry_without_its_slots_is_refused(stack, base, left):
    def change(state):
        own = {k: v for k, v in state["state"][1].items() if k.startswith("agn/")}
        kept = {k: v for k, v in state["state"][1].items() if k in left}
        state["state"][1] = own | kept if left else {}

    assert_refuses(stack, base, change, "the saved slots|'agn/accumulator'")


@pytest.mark.parametrize("stack", STACKS)
def test_names_of_another_length_are_refused(stack):
    def change(state):
        state["param_groups"][0]["param_names"].pop()

    assert_refuses(stack, "Adam", change, "6 names in 'param_names', got 5")


@pytest.mark.parametrize("stack", CAPTURABLE)
def test_capturable_refuses_the_state_of_an_optimizer_that_is_not_fused(stack):
    def change(state):
        state["param_groups"][0]["fused"] = None

    sentence = "a fused optimizer for capturable=True, got Adam that is not"
    assert_refuses(stack, "Adam fused", change, sentence)
