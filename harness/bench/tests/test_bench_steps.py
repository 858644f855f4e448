"""What the benchmarks time: every variant can take its step, and does what it says."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.bench.declare import find
from harness.tasks import backends
from harness.tasks.overhead.shapes import arrays
from harness.tasks.row_clipping_overhead.tables import LIMIT, SHORT, WIDTH, named_rows
from harness.timing import AGAIN, Rounds, build_steps
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
    ("loss_scaling", "keras3", {"part": "step", "model": "smoke"}),
    ("multitask_overhead", "keras3", {"model": "smoke", "zeros": "half"}),
    ("row_clipping", "keras3", {"part": "step", "vocabulary": "600"}),
    ("masters", "keras3", {"model": "smoke"}),
    ("masters", "pytorch", {"model": "smoke"}),
    ("small_steps", "pytorch", {"model": "smoke", "wrapper": "stacked"}),
    ("small_steps", "pytorch", {"model": "smoke", "wrapper": "AdamOptimizer"}),
    ("masters", "keras3", {"model": "smoke", "jit": "xla"}),
    ("larc_overhead", "pytorch", {"model": "smoke"}),
    ("larc_overhead", "tf", {"model": "smoke", "jit": "xla"}),
    ("larc_overhead", "keras3", {"model": "smoke"}),
    ("novograd_overhead", "pytorch", {"model": "smoke"}),
    ("novograd_overhead", "keras3", {"model": "smoke"}),
    ("novograd_overhead", "keras3", {"model": "smoke", "jit": "xla"}),
    ("optimize_loss_overhead", "pytorch", {"model": "smoke"}),
]


def model_of(task: str, backend: str) -> ModuleType:
    framework = registry.find(backend).framework or "numpy"
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    found: ModuleType = backends.model(f"harness.tasks.{task}", backend)
    return found


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "backend", "setup"), SMALL)
def test_the_variants_are_ours_and_the_peers_of_the_table(
    name: str, backend: str, setup: Setup
) -> None:
    benchmark = find(name)
    makers = model_of(benchmark.task, backend).makers(0, device="cpu", **setup)
    rounds = Rounds(lambda seed: build_steps(makers, makers, seed), 1, seed=0)
    rounds()
    variants = {
        variant.removesuffix(AGAIN)
        for row in benchmark.rows
        if row.backend == backend and row.setup.get("part") == setup.get("part")
        for variant in row.variants
    }
    assert {"ours"} | variants <= set(rounds.seconds)


@pytest.mark.parametrize("name", ["ours", "forward", "dense"])
def test_every_clip_in_pytorch_shortens_the_named_rows_and_no_others(name: str) -> None:
    model = model_of("row_clipping_overhead", "pytorch")
    table = model.Table(600, 0, "cpu")
    step = model.clip_makers(table, 0)[name]()
    step.prepare()
    step()
    check_clipped(table.weight.detach().numpy())


@pytest.mark.parametrize("maker", ["our_clip", "dense_clip"])
def test_every_clip_in_tensorflow_shortens_the_named_rows_and_no_others(
    maker: str,
) -> None:
    model = model_of("row_clipping_overhead", "tf")
    table = model.Table(600, 0)
    step = getattr(model, maker)(table)
    step.prepare()
    step()
    check_clipped(table.weight.numpy())


def check_clipped(rows: Any, rounding: float = 0.0) -> None:
    named = np.zeros(len(rows), bool)
    named[named_rows(len(rows), 0)] = True
    # Rounding of one division; embedding_renorm_ adds 1e-7 to the norm.
    assert np.linalg.norm(rows[named], axis=1) == pytest.approx(LIMIT, rel=1e-5)
    assert np.abs(rows[~named] / np.float32(SHORT) - 1).max() <= rounding
    assert rows.shape[1] == WIDTH


@pytest.mark.parametrize("policy", ["poly_decay", "cosine_decay", "transformer_policy"])
def test_both_schedulers_write_the_same_rates(policy: str) -> None:
    model = model_of("learning_rate_overhead", "pytorch")
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
    model = model_of("loss_scaling_overhead", "pytorch")
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
    model = model_of("masters_overhead", "pytorch")
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
    model = model_of("larc_overhead", "pytorch")
    found = []
    for make in (model.our_step, model.loop_step):
        weights = model.parameters("smoke", "cpu", model.torch.float32)
        model.Gradients("smoke", 1.0, "cpu", model.torch.float32).fill(weights)
        make(weights)()
        found.append(np.stack([weight.grad.numpy() for weight in weights]))
    np.testing.assert_allclose(*found, rtol=1e-6)


@pytest.mark.parametrize("backend", ["tf", "keras3"])
def test_both_ways_of_larc_scale_the_gradients_alike_in_tensorflow(
    backend: str,
) -> None:
    model = model_of("larc_overhead", backend)
    makers = model.makers(0, device="cpu", model="smoke")
    ours, loop = (np.stack(makers[name]()()) for name in ("ours", "loop"))
    np.testing.assert_allclose(ours, loop, rtol=1e-6)
    assert not np.allclose(ours, np.stack(model.arrays("smoke", 1)))


@pytest.mark.parametrize("backend", ["pytorch", "keras3"])
def test_both_ways_of_novograd_lead_to_the_same_weights(backend: str) -> None:
    model = model_of("novograd_overhead", backend)
    found = []
    for make in (model.our_step, model.loop_step):
        if backend == "pytorch":
            weights = model.parameters("smoke", "cpu", model.torch.float32)
            gradients = model.Gradients("smoke", 1.0, "cpu", model.torch.float32)
            gradients.fill(weights)
            step = make(weights)
        else:
            weights = model.keras_variables("smoke")
            drawn = [model.tf.constant(value) for value in model.arrays("smoke", 1)]
            step = make(drawn, weights)
        for _ in range(3):
            step()
        found.append(
            np.stack(
                [
                    np.asarray(w.detach() if backend == "pytorch" else w.value)
                    for w in weights
                ]
            )
        )
    # The weights are of 0.02; each of three steps rounds once.
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-8)
    assert not np.allclose(found[0], np.stack(arrays("smoke", 0)))


@pytest.mark.parametrize("name", ["smoke", "MLP"])
def test_a_step_in_one_call_is_the_step_by_hand(name: str) -> None:
    model = model_of("optimize_loss_overhead", "pytorch")
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
    model = model_of("optimize_loss_overhead", "pytorch")
    for make in (model.our_step, model.by_hand):
        loss, weights = model.problem("smoke", "cpu")
        start = weights[0].detach().clone()
        make(lambda loss=loss: loss() * float("inf"), weights)()
        assert weights[0].equal(start)


@pytest.mark.parametrize("peer", ["keras_step", "bare_step"])
def test_in_keras_both_steps_unscale_and_clip_alike(peer: str) -> None:
    model = model_of("loss_scaling_overhead", "keras3")
    gradients = [model.tf.constant(g * model.SCALE) for g in model.arrays("smoke", 1)]
    ours, theirs = (model.keras_variables("smoke") for _ in range(2))
    steps = (
        model.our_step(model.DynamicLossScale, gradients, ours),
        getattr(model, peer)(gradients, theirs),
    )
    for _ in range(2):
        for step in steps:
            step()
    moved = [np.stack([v.numpy() for v in values]) for values in (ours, theirs)]
    start = np.stack(model.arrays("smoke", 0))
    # Adam divides by the root of small squares; its epsilon tells the scales apart.
    same = np.allclose(moved[0] - start, moved[1] - start, rtol=1e-3, atol=1e-8)
    assert same == (peer == "keras_step")


def test_in_keras_both_ways_of_masters_lead_to_the_same_weights() -> None:
    model = model_of("masters_overhead", "keras3")
    gradients = [
        model.tf.constant(g * model.SCALE, model.tf.float16)
        for g in model.arrays("smoke", 1)
    ]
    weights = []
    for make in (model.our_step, model.loop_step):
        variables = model.keras_variables("smoke", "float16")
        step = make(gradients, variables)
        for _ in range(3):
            step()
        weights.append(np.stack([np.asarray(v.value) for v in variables]))
    # One rounding to float16 may go the other way.
    np.testing.assert_allclose(*weights, rtol=2e-3)
    assert not np.array_equal(weights[0], np.stack(model.arrays("smoke", 0)))


@pytest.mark.parametrize("name", ["ours", "constraint", "bare"])
def test_every_clip_in_keras_shortens_the_named_rows_and_no_others(name: str) -> None:
    model = model_of("row_clipping_overhead", "keras3")
    tables: list[Any] = []
    table = model.table

    def kept(*arguments: Any) -> Any:
        tables.append(table(*arguments))
        return tables[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "table", kept)
        model.makers(0, "cpu", "step", "600")[name]()()
    rows = tables[0][0].numpy()
    if name == "bare":
        named = named_rows(600, 0)
        assert np.linalg.norm(rows[named], axis=1).min() > LIMIT
    else:
        # MaxNorm multiplies every row, short ones by 1 to a rounding.
        check_clipped(rows, rounding=1e-6 if name == "constraint" else 0.0)


@pytest.mark.parametrize(
    "wrapper", ["multitask", "rows", "scaling", "masters", "stacked", "AdamOptimizer"]
)
def test_every_wrapped_small_step_moves_every_weight(wrapper: str) -> None:
    model = model_of("small_steps_overhead", "pytorch")
    kept: list[Any] = []

    def wrap(weights: Any) -> Any:
        kept.extend(weights)
        return model.WRAPPERS[wrapper](weights)

    dtype = model.torch.float16 if wrapper == "masters" else model.torch.float32
    step = model.wrapped_step(wrap, dtype, "S20", "cpu")
    before = [weight.detach().clone() for weight in kept]
    step.prepare()
    step()
    assert len(kept) == 20
    assert all((old != new).any() for old, new in zip(before, kept, strict=True))
