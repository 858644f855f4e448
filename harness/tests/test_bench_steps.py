"""What the benchmarks time: every variant can take its step, and does what it says."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.bench.bench_setups import MODELS
from harness.bench.declare import find
from harness.tasks.row_clipping_overhead.tables import LIMIT, SHORT, WIDTH, named_rows
from harness.timing import Rounds
from lockstep import registry

Setup = dict[str, str]

SMALL: list[tuple[str, str, Setup]] = [
    ("row_clipping", "pytorch", {"part": "clip", "vocabulary": "600"}),
    ("row_clipping", "pytorch", {"part": "step", "vocabulary": "600"}),
    ("row_clipping", "tf", {"part": "clip", "vocabulary": "600"}),
    ("learning_rate", "pytorch", {"policy": "poly_decay"}),
    ("loss_scaling", "pytorch", {"part": "step", "model": "smoke"}),
    ("loss_scaling", "pytorch", {"part": "update", "scaler": "dynamic"}),
    ("loss_scaling", "pytorch", {"part": "update", "scaler": "LogMax"}),
    ("loss_scaling", "tf", {"part": "step", "model": "smoke"}),
    ("masters", "pytorch", {"model": "smoke"}),
    ("larc_overhead", "pytorch", {"model": "smoke"}),
    ("optimize_loss_overhead", "pytorch", {"model": "smoke"}),
]


def host(task: str, backend: str) -> ModuleType:
    framework = registry.find(backend).framework or "numpy"
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    return importlib.import_module(f"harness.tasks.{task}.{MODELS[backend]}")


@pytest.mark.parametrize(("name", "backend", "setup"), SMALL)
def test_the_variants_are_ours_and_the_peers_of_the_table(
    name: str, backend: str, setup: Setup
) -> None:
    benchmark = find(name)
    model = host(benchmark.task, backend)
    rounds = Rounds(lambda seed: model.variants(seed, **setup, device="cpu"), 1, seed=0)
    rounds()
    peers = {
        row.peer
        for row in benchmark.rows
        if row.backend == backend and row.setup.get("part") == setup.get("part")
    }
    assert {"ours", *peers} <= set(rounds.seconds)


@pytest.mark.parametrize("name", ["ours", "forward", "dense"])
def test_every_clip_in_pytorch_shortens_the_named_rows_and_no_others(name: str) -> None:
    model = host("row_clipping_overhead", "pytorch")
    table = model.Table(600, 0, "cpu")
    step = model.clip_makers(table, 0)[name]()
    step.prepare()
    step()
    check_clipped(table.weight.detach().numpy())


@pytest.mark.parametrize("maker", ["our_clip", "dense_clip"])
def test_every_clip_in_tensorflow_shortens_the_named_rows_and_no_others(
    maker: str,
) -> None:
    model = host("row_clipping_overhead", "tf")
    table = model.Table(600, 0)
    step = getattr(model, maker)(table)
    step.prepare()
    step()
    check_clipped(table.weight.numpy())


def check_clipped(rows: Any) -> None:
    named = np.zeros(len(rows), bool)
    named[named_rows(len(rows), 0)] = True
    # Rounding of one division; embedding_renorm_ adds 1e-7 to the norm.
    assert np.linalg.norm(rows[named], axis=1) == pytest.approx(LIMIT, rel=1e-5)
    assert (rows[~named] == np.float32(SHORT)).all()
    assert rows.shape[1] == WIDTH


@pytest.mark.parametrize("policy", ["poly_decay", "cosine_decay", "transformer_policy"])
def test_both_schedulers_write_the_same_rates(policy: str) -> None:
    model = host("learning_rate_overhead", "pytorch")
    kinds = (
        model.PolicyLR(model.optimizer("cpu"), policy, **model.POLICIES[policy]),
        model.LambdaLR(model.optimizer("cpu"), model.LAMBDAS[policy]),
    )
    for _ in range(5):
        written = []
        for scheduler in kinds:
            model.block(scheduler)()
            written.append([g["lr"] for g in scheduler.optimizer.param_groups])
        # Ours rounds every operation to float32.
        assert written[0] == pytest.approx(written[1], rel=1e-5)


@pytest.mark.parametrize("kind", ["our_step", "gradscaler_step"])
def test_gradients_are_unscaled_and_clipped_before_adam_sees_them(kind: str) -> None:
    model = host("loss_scaling_overhead", "pytorch")
    weights = model.parameters("S1000", "cpu", model.torch.float32)
    gradients = model.Gradients("S1000", model.SCALE, "cpu", model.torch.float32)
    options = {"fused": True} if kind == "gradscaler_step" else {}
    scale, step = getattr(model, kind)(weights, **options)
    optimizers: list[Any] = []
    torch_optimizer = importlib.import_module("torch.optim.optimizer")
    hook = torch_optimizer.register_optimizer_step_post_hook(
        lambda optimizer, *_: optimizers.append(optimizer)
    )
    for _ in range(2):
        gradients.fill(weights)
        scale()
        step()
    hook.remove()
    moments = [optimizers[-1].state[weight]["exp_avg"].numpy() for weight in weights]
    # Of one gradient twice, Adam's first moment is 1 - 0.9^2 of it.
    expected = pytest.approx(0.19 * model.CLIP, rel=1e-4)
    assert np.linalg.norm(np.concatenate(moments)) == expected


def test_the_step_on_masters_divides_by_the_scale() -> None:
    model = host("masters_overhead", "pytorch")
    weights = model.parameters("S1000", "cpu", model.torch.float16)
    gradients = model.Gradients("S1000", model.SCALE, "cpu", model.torch.float16)
    scale, step = model.our_step(weights)
    gradients.fill(weights)
    scale()
    step()
    squares = sum(value.double().square().sum() for value in gradients.values)
    expected = pytest.approx(squares.sqrt().item() / model.SCALE, rel=1e-6)
    assert step.__self__.last_step.norm == expected


def test_both_ways_of_larc_scale_the_gradients_alike() -> None:
    model = host("larc_overhead", "pytorch")
    found = []
    for make in (model.our_step, model.loop_step):
        weights = model.parameters("smoke", "cpu", model.torch.float32)
        model.Gradients("smoke", 1.0, "cpu", model.torch.float32).fill(weights)
        make(weights)()
        found.append(np.stack([weight.grad.numpy() for weight in weights]))
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("name", ["smoke", "MLP"])
def test_a_step_in_one_call_is_the_step_by_hand(name: str) -> None:
    model = host("optimize_loss_overhead", "pytorch")
    found = []
    for make in (model.our_step, model.by_hand):
        loss, weights = model.problem(name, "cpu")
        step = make(loss, weights)
        before = [weight.detach().clone() for weight in weights]
        for _ in range(3):
            step()
        found.append([weight.detach().numpy() for weight in weights])
        pairs = zip(before, weights, strict=True)
        assert all((start != weight).any() for start, weight in pairs)
    for ours, theirs in zip(*found, strict=True):
        # Adam divides by the root of tiny squares.
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


def test_a_step_by_hand_that_is_not_finite_is_skipped() -> None:
    model = host("optimize_loss_overhead", "pytorch")
    for make in (model.our_step, model.by_hand):
        loss, weights = model.problem("smoke", "cpu")
        start = weights[0].detach().clone()
        make(lambda loss=loss: loss() * float("inf"), weights)()
        assert weights[0].equal(start)
