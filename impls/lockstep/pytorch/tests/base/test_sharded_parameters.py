"""Parameters of which each rank has a part: what refuses them, and odd layouts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import distributed, nn
from torch.optim import Optimizer

from lockstep.pytorch import (
    AGNCustomGetter,
    AGNOptimizer,
    DynamicLossScale,
    GradientDescentOptimizer,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    clip_gradients_by_global_norm,
    optimize_loss,
    post_process_gradients,
    reduce_gradients,
)
from lockstep.pytorch.tests.ranks import needs_gloo, on_two_ranks
from lockstep.pytorch.tests.subjects import TwoHeads

pytestmark = needs_gloo


def agn(opt: Optimizer) -> AGNOptimizer:
    getter = AGNCustomGetter("cpu")
    getter([p for group in opt.param_groups for p in group["params"]])
    return AGNOptimizer(opt, 1, getter)


def scaled(opt: Optimizer) -> MixedPrecisionLossScaleOptimizer:
    return MixedPrecisionLossScaleOptimizer(opt, DynamicLossScale(8.0))


def capturable(opt: Optimizer) -> MixedPrecisionLossScaleOptimizer:
    for group in opt.param_groups:
        group["fused"] = True
    return MixedPrecisionLossScaleOptimizer(opt, DynamicLossScale(8.0), capturable=True)


WRAPPERS: dict[str, Callable[[Optimizer], Optimizer]] = {
    "agn": agn,
    "masters": MixedPrecisionOptimizerWrapper,
    "capturable": capturable,
}


def sharded(dtype: torch.dtype = torch.float32) -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = TwoHeads().to(dtype)
    ranks = distributed.get_world_size()
    fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    return model


def sentence_of(action: Callable[[], object]) -> str:
    try:
        action()
    except ValueError as error:
        return str(error)
    return "nothing raised"


def refusals(rank: int) -> dict[str, list[str]]:
    """Return the sentences of construction, a new group, and a step."""
    sentences = {}
    for name, wrap in WRAPPERS.items():
        model = sharded()
        parts = list(model.parameters())
        bare = torch.optim.SGD(parts, lr=0.1)
        made = [sentence_of(lambda wrap=wrap, bare=bare: wrap(bare))]
        whole = nn.Parameter(torch.ones(2))
        optimizer = wrap(torch.optim.SGD([("whole", whole)], lr=0.1))
        for params in (parts, parts[0], iter(parts), [("part", parts[0])]):
            group = {"params": params}
            add = optimizer.add_param_group
            made.append(sentence_of(lambda add=add, group=group: add(group)))
        groups = optimizer.param_groups
        made.append(f"{len(groups)} group of {len(groups[0]['params'])}")
        # As where somebody puts them into a group by hand.
        groups[0]["params"] = [whole, *parts]
        whole.grad = torch.ones(2)
        for part in parts:
            part.grad = torch.ones_like(part)
        made.append(sentence_of(optimizer.step))
        if hasattr(optimizer, "unscale_"):
            made.append(sentence_of(optimizer.unscale_))
        made.append(str(whole.tolist()))
        sentences[name] = made
    return sentences


class Silent:
    """A recorder."""

    def scalar(self, tag: str, value: object) -> None:
        raise AssertionError(tag)

    histogram = scalar


def calls_with_whole_gradients(rank: int) -> list[str]:
    """Return the sentences of what needs whole gradients."""
    model = sharded()
    parts = list(model.named_parameters())
    optimizer = MultitaskOptimizerWrapper(torch.optim.SGD(parts, lr=0.1))
    pairs = [(torch.ones_like(part).detach(), part) for _, part in parts]
    inputs = torch.ones(2, 3)
    recorder = Silent()
    tensor = torch.ones(4, 3)
    whole = [(tensor, model.body.weight)]
    rule = GradientDescentOptimizer(parts, 0.1)
    model.body.weight.grad = tensor
    return [
        sentence_of(lambda: optimizer.apply_gradients(whole)),
        sentence_of(rule.step),
        sentence_of(lambda: optimizer.minimize(lambda: model(inputs, 1.0, 1.0))),
        sentence_of(lambda: optimize_loss(torch.ones, "SGD", {}, 0.1, parts)),
        sentence_of(lambda: reduce_gradients(pairs, on_horovod=True)),
        sentence_of(
            lambda: post_process_gradients(pairs, [], 0.1, 1.0, None, recorder)
        ),
    ]


def terms(rank: int) -> list[list[float]]:
    """Train weights that are the same on all ranks, whose gradients are terms."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial, Replicate

    mesh, found = init_device_mesh("cpu", (2,)), []
    for mine in ([[3.0, 0.0], [0.0, 4.0]], [[1.0, -1.0], [-1.0, 1.0]]):
        gradient = DTensor.from_local(torch.tensor(mine[rank]), mesh, [Partial()])
        start = DTensor.from_local(torch.zeros(2), mesh, [Replicate()])
        for make in (GradientDescentOptimizer, torch.optim.SGD):
            weight = nn.Parameter(start.clone())
            optimizer = MultitaskOptimizerWrapper(make([weight], 1.0))
            weight.grad = clip_gradients_by_global_norm([(gradient, weight)], 2.5)[0][
                0
            ][0]
            optimizer.step()
            reason = optimizer.last_step.reason
            found.append(
                [*weight.full_tensor().tolist(), float("1 all zero" in reason)]
            )
    return found


def one_row(rank: int) -> list[list[float]]:
    """Train weights whose gradient is not zero, or not finite, on one rank alone."""
    found = []
    for value in (0.0, 0.5, torch.inf):
        weight = sharded().body.weight
        gradient = weight.detach().clone().zero_()
        if rank == 1:
            gradient.to_local()[0, 0] = value
        adam = torch.optim.Adam([weight], 0.125)
        optimizer = scaled(MultitaskOptimizerWrapper(adam))
        optimizer.apply_gradients([(gradient, weight)])
        steps = adam.state[weight].get("step", 0) if weight in adam.state else 0
        found.append([float(optimizer.loss_scale), float(steps)])
    return found


def everything(rank: int) -> dict[str, object]:
    return {
        "refusals": refusals(rank),
        "calls": calls_with_whole_gradients(rank),
        "terms": terms(rank),
        "one row": one_row(rank),
    }


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    return on_two_ranks(everything, tmp_path_factory.mktemp("ranks"))


def test_they_are_refused_before_anything_changes(ranks) -> None:
    first, second = (rank["refusals"] for rank in ranks)
    assert first == second
    for found in first.values():
        *before, groups, step = found[:7]
        assert groups == "1 group of 1" and found[-1] == "[1.0, 1.0]"
        for sentence in (*before, step, *found[7:-1]):
            assert "expected parameters that are whole on each rank" in sentence
            assert "got a DTensor, as fully_shard" in sentence


def test_whole_gradients_are_refused(ranks) -> None:
    assert ranks[0]["calls"] == ranks[1]["calls"]
    applied, stepped, minimized, whole_step, reduced, recorded = ranks[0]["calls"]
    for sentence in (applied, stepped):
        assert "a DTensor as the gradient of 'body.weight', got a whole" in sentence
    assert "call loss.backward() and the optimizer's step()" in minimized
    assert whole_step.startswith("optimize_loss: expected parameters that are whole")
    assert "reduce_gradients: expected parameters that are whole" in reduced
    assert "whole on each rank for a recorder, got a DTensor" in recorded


def test_terms_of_gradients_are_added_up_before_they_are_judged(ranks) -> None:
    assert ranks[0]["terms"] == ranks[1]["terms"]
    # The norm of [3, 4] is 5, and it is clipped to 2.5.
    assert ranks[0]["terms"] == [[-1.5, -2.0, 0.0]] * 2 + [[0.0, 0.0, 1.0]] * 2


def test_one_row_decides_for_all_ranks(ranks) -> None:
    for rank in ranks:
        assert rank["one row"] == [[8.0, 0.0], [8.0, 1.0], [4.0, 0.0]]
