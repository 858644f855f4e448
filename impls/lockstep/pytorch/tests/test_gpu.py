"""What only a GPU can show: how often a step waits for it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn import Parameter, functional

from lockstep.pytorch import (
    DynamicLossScale,
    MixedPrecisionLossScaleOptimizer,
    MixedPrecisionOptimizerWrapper,
    MultitaskOptimizerWrapper,
    VariableClippingOptimizer,
    clip_gradients_by_global_norm,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]


def host_syncs(function) -> int:
    """Call ``function`` and count the operations in it that wait for the GPU."""
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            function()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchronizing CUDA operation" in str(w.message) for w in caught)


def parameters(zeros: int, count: int = 20) -> list[Parameter]:
    """Return parameters on the GPU with gradients, the first few of them all zero."""
    made = [Parameter(torch.ones(300, 20, device="cuda")) for _ in range(count)]
    for position, parameter in enumerate(made):
        parameter.grad = torch.full_like(parameter, float(position >= zeros))
    return made


@pytest.mark.parametrize(("zeros", "syncs"), [(0, 1), (7, 2), (20, 2)])
def test_a_step_waits_once_and_a_second_time_where_there_are_zeros(zeros, syncs):
    adam = torch.optim.Adam(parameters(zeros), fused=True)
    wrapper = MultitaskOptimizerWrapper(adam)
    wrapper.step()
    assert host_syncs(wrapper.step) == syncs
    assert len(wrapper.last_step.skipped) == zeros


def test_clipping_does_not_wait():
    pairs = [(parameter.grad, parameter) for parameter in parameters(3)]
    assert host_syncs(lambda: clip_gradients_by_global_norm(pairs, 1.0)) == 0
    _, norm = clip_gradients_by_global_norm(pairs, 1.0)
    assert norm.item() == pytest.approx((17 * 6000) ** 0.5, rel=1e-6)


@pytest.mark.parametrize("fused", [False, True], ids=["foreach", "fused"])
@pytest.mark.parametrize("clip_norm", [None, 1.0])
def test_a_scaled_step_waits_once_and_a_second_time_to_be_sure(clip_norm, fused):
    """Without a norm, an overflow of the sum of the elements is no proof."""
    trained = parameters(0)
    adam = torch.optim.Adam(trained, fused=fused)
    scale = DynamicLossScale(2.0**10, 1)
    wrapper = MixedPrecisionLossScaleOptimizer(adam, scale, clip_norm=clip_norm)
    for overflow in (False, False, True):
        wrapper.scale_loss(torch.ones((), device="cuda", requires_grad=True))
        if overflow:
            trained[3].grad[0, 0] = torch.inf
        assert host_syncs(wrapper.step) == 1 + (overflow and clip_norm is None)
        assert wrapper.last_step.applied != overflow
    assert wrapper.last_step.nonfinite == ("param_groups[0]['params'][3]",)


def test_moving_the_scale_does_not_wait():
    scale = DynamicLossScale(2.0**10, 1)
    assert host_syncs(lambda: (scale.move(True), scale.move(False))) == 0


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_row_clipping_does_not_wait(sparse):
    table = Parameter(torch.full((1000, 4), 3.0, device="cuda"))
    sgd = torch.optim.SGD([table], lr=0.0)
    wrapper = VariableClippingOptimizer(sgd, {table: [1]}, 1.0)
    rows = torch.tensor([1, 5, 1], device="cuda") if sparse else None
    assert host_syncs(lambda: wrapper.clip({table: rows})) == 0
    assert int((table < 1).all(dim=1).sum()) == (2 if sparse else 1000)


@pytest.mark.parametrize("bad", [False, True], ids=["finite", "not finite"])
def test_masters_that_clip_wait_once(bad):
    weights = [Parameter(torch.ones(300, 20, device="cuda").half()) for _ in range(20)]
    adam = torch.optim.Adam(weights, fused=True)
    wrapper = MixedPrecisionOptimizerWrapper(adam, "dynamic", clip_norm=1.0)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    wrapper.step()
    weights[3].grad.fill_(torch.inf if bad else 1.0)
    assert host_syncs(wrapper.step) == 1
    assert wrapper.last_step.applied is not bad


def scaled(opt, capturable, clip_norm=None):
    scale = DynamicLossScale(2.0**10, 3)
    options = {"clip_norm": clip_norm, "capturable": capturable}
    return MixedPrecisionLossScaleOptimizer(opt, scale, **options)


def multitask(opt, capturable):
    return MultitaskOptimizerWrapper(opt, capturable=capturable)


def rows(opt, net):
    return VariableClippingOptimizer(opt, {net.digit.weight: [1]}, 0.5)


BASES = {
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, fused=True, capturable=True),
    "AdamW amsgrad": lambda p: torch.optim.AdamW(
        p, lr=0.01, amsgrad=True, fused=True, capturable=True
    ),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
    "SGD momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
}
STACKS = {
    "scaled": (torch.float32, lambda net, opt, c: scaled(opt, c)),
    "scaled, clipped": (torch.float32, lambda net, opt, c: scaled(opt, c, 0.5)),
    "multitask": (torch.float32, lambda net, opt, c: multitask(opt, c)),
    "everything": (
        torch.float32,
        lambda net, opt, c: rows(scaled(multitask(opt, c), c, 0.5), net),
    ),
}
BATCHES = 12
TASKS = [(1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0)]


class Net(torch.nn.Module):
    """A body and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(16, 32)
        self.digit, self.parity = torch.nn.Linear(32, 4), torch.nn.Linear(32, 2)

    def loss(self, inputs, classes, tasks):
        """Return the sum of the heads' losses, times ``tasks``: [2]."""
        hidden = self.body(inputs).relu()
        digit = functional.cross_entropy(self.digit(hidden).float(), classes)
        parity = functional.cross_entropy(self.parity(hidden).float(), classes % 2)
        return digit * tasks[0] + parity * tasks[1]


def training(stack, base, capturable):
    """Return a net, its optimizer, and a function that computes gradients."""
    dtype, wrap = STACKS[stack]
    torch.manual_seed(0)
    net = Net().to("cuda", dtype)
    optimizer = wrap(net, BASES[base](net.parameters()), capturable)
    scale = getattr(optimizer, "scale_loss", lambda loss: loss)
    return net, optimizer, lambda batch: scale(net.loss(*batch)).backward()


def batch_of(k, stack):
    """Return a batch on the GPU. Two are not finite."""
    generator = torch.Generator().manual_seed(k)
    inputs = torch.randn(8, 16, generator=generator)
    if k in (4, 7):
        inputs[0, 0] = torch.inf
    classes = torch.randint(4, (8,), generator=generator)
    tasks = torch.tensor(TASKS[k % len(TASKS)])
    return inputs.to("cuda", STACKS[stack][0]), classes.cuda(), tasks.cuda()


def in_a_graph(stack, base):
    """Train in a CUDA graph; return the net and the reports."""
    net, optimizer, backward = training(stack, base, capturable=True)
    batch = batch_of(0, stack)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            optimizer.zero_grad()
            backward(batch)
            optimizer.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        backward(batch)
        optimizer.step()
    reports = []
    for k in range(BATCHES):
        for part, new in zip(batch, batch_of(k, stack), strict=True):
            part.copy_(new)
        graph.replay()
        reports.append(optimizer.last_step)
    return net, reports


def without_a_graph(stack, base, capturable):
    """Train as :func:`in_a_graph` does."""
    net, optimizer, backward = training(stack, base, capturable)
    reports = []
    for k in [0, 0, 0, *range(BATCHES)]:
        optimizer.zero_grad()
        backward(batch_of(k, stack))
        optimizer.step()
        reports.append(optimizer.last_step)
    return net, reports[3:]


# That a capturable Adam also takes steps outside of a graph is no news.
@pytest.mark.filterwarnings("ignore:This instance was constructed with capturable")
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("stack", STACKS)
def test_a_cuda_graph_gives_the_bits_of_steps_one_by_one(stack, base):
    net, reports = in_a_graph(stack, base)
    for capturable in (True, False):
        other, expected = without_a_graph(stack, base, capturable)
        torch.testing.assert_close(
            net.state_dict(), other.state_dict(), rtol=0.0, atol=0.0
        )
        for report, right in zip(reports, expected, strict=True):
            assert (report.applied, report.skipped) == (right.applied, right.skipped)
    assert [k for k in range(BATCHES) if not reports[k].applied]


@pytest.mark.parametrize("stack", STACKS)
def test_no_capturable_stack_waits(stack):
    _, optimizer, backward = training(stack, "SGD momentum", capturable=True)
    for k in range(BATCHES):
        optimizer.zero_grad()
        backward(batch_of(k, stack))
        assert host_syncs(optimizer.step) == 0
