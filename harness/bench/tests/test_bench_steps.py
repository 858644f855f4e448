"""What the benchmarks time: every variant can take its step, and does what it says."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from harness.bench.declare import find
from harness.tasks import backends
from harness.tasks.overhead.shapes import (
    CLIP,
    LIMIT,
    MASTERS_SCALE,
    SHORT,
    WIDTH,
    arrays,
    gradients,
    named_rows,
)
from harness.timing import AGAIN, Prepared, Rounds, build_steps
from lockstep import registry

Setup = dict[str, str]

SMALL: list[tuple[str, str, Setup]] = [
    ("row_clipping", "pytorch", {"part": "clip", "vocabulary": "600"}),
    ("row_clipping", "pytorch", {"part": "step", "vocabulary": "600"}),
    ("row_clipping", "tf", {"part": "clip", "vocabulary": "600"}),
    ("loss_scaling", "pytorch", {"part": "step", "model": "smoke"}),
    ("loss_scaling", "pytorch", {"part": "update", "scaler": "dynamic"}),
    ("loss_scaling", "pytorch", {"part": "update", "scaler": "LogMax"}),
    ("loss_scaling", "tf", {"part": "step", "model": "smoke"}),
    ("multitask_overhead", "tf", {"model": "smoke", "zeros": "half"}),
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


def model_of(backend: str) -> ModuleType:
    framework = registry.find(backend).framework or "numpy"
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    found: ModuleType = backends.model("overhead", backend)
    return found


def makers_of(name: str, backend: str, setup: Setup) -> Any:
    return getattr(model_of(backend), find(name).task)(0, device="cpu", **setup)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("name", "backend", "setup"), SMALL)
def test_the_variants_are_ours_and_the_peers_of_the_table(
    name: str, backend: str, setup: Setup
) -> None:
    makers = makers_of(name, backend, setup)
    rounds = Rounds(lambda seed: build_steps(makers, makers, seed), 1, seed=0)
    rounds()
    variants = {
        variant.removesuffix(AGAIN)
        for row in find(name).rows
        if row.backend == backend and row.setup.get("part") == setup.get("part")
        for variant in row.variants
    }
    assert {"ours"} | variants <= set(rounds.seconds)


# -- variants against each other -------------------------------------------------------


def weights_after(
    steps: int, name: str, backend: str, variant: str, setup: Setup
) -> Sequence[Any]:
    """Return the weights of a variant after some steps."""
    model, built = model_of("pytorch" if backend == "pytorch" else "tf"), list[Any]()
    drawn = "parameters" if backend == "pytorch" else "variables"
    draw = getattr(model, drawn)

    def kept(*arguments: Any) -> Any:
        built.append(draw(*arguments))
        return built[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, drawn, kept)
        step = makers_of(name, backend, setup)[variant]()
    for _ in range(steps):
        if isinstance(step, Prepared):
            step.prepare()
        step()
    weights: Sequence[Any] = built[-1]
    return weights


def stacked(weights: Sequence[Any]) -> Any:
    plain = [w.detach() if hasattr(w, "detach") else w.value for w in weights]
    return np.stack([np.asarray(weight, np.float64) for weight in plain])


STEP = {"part": "step", "model": "smoke"}
ALIKE: list[tuple[str, str, str, Setup, float]] = [
    # Weights are of 0.02; each of three steps rounds once.
    ("novograd_overhead", "pytorch", "loop", {"model": "smoke"}, 1e-5),
    ("novograd_overhead", "keras3", "loop", {"model": "smoke"}, 1e-5),
    ("loss_scaling", "pytorch", "same", STEP, 1e-5),
    ("loss_scaling", "pytorch", "fixed", STEP, 1e-5),
    ("loss_scaling", "keras3", "keras", STEP, 1e-5),
    # One rounding to float16 may go the other way.
    ("masters", "pytorch", "loop", {"model": "smoke"}, 2e-3),
    ("masters", "keras3", "loop", {"model": "smoke"}, 2e-3),
    ("multitask_overhead", "pytorch", "loop", {"model": "smoke", "zeros": "half"}, 0),
    ("multitask_overhead", "keras3", "bare", {"model": "smoke", "zeros": "none"}, 0),
]


@pytest.mark.parametrize(("name", "backend", "peer", "setup", "rounding"), ALIKE)
def test_ours_and_its_peer_lead_to_the_same_weights(
    name: str, backend: str, peer: str, setup: Setup, rounding: float
) -> None:
    ours, theirs = (
        stacked(weights_after(3, name, backend, variant, setup))
        for variant in ("ours", peer)
    )
    np.testing.assert_allclose(ours, theirs, rtol=rounding, atol=1e-8)
    assert not np.allclose(ours, np.stack(arrays("smoke", 0)))


@pytest.mark.parametrize("backend", ["pytorch", "tf", "keras3"])
def test_both_ways_of_larc_scale_the_gradients_alike(backend: str) -> None:
    setup, found = {"model": "smoke"}, []
    for variant in ("ours", "loop"):
        if backend == "pytorch":
            weights = weights_after(1, "larc_overhead", backend, variant, setup)
            found.append(np.stack([weight.grad.numpy() for weight in weights]))
        else:
            step = makers_of("larc_overhead", backend, setup)[variant]()
            found.append(np.stack(step()))
    np.testing.assert_allclose(*found, rtol=1e-6)
    assert not np.allclose(found[0], np.stack(arrays("smoke", 1)))


@pytest.mark.parametrize("kind", ["ours", "same"])
def test_gradients_are_unscaled_and_clipped_before_adam_sees_them(kind: str) -> None:
    torch_optimizer = pytest.importorskip("torch.optim.optimizer")
    optimizers: list[Any] = []
    hook = torch_optimizer.register_optimizer_step_post_hook(
        lambda optimizer, *_: optimizers.append(optimizer)
    )
    setup = {"part": "step", "model": "S1000"}
    weights = weights_after(2, "loss_scaling", "pytorch", kind, setup)
    hook.remove()
    moments = [optimizers[-1].state[weight]["exp_avg"].numpy() for weight in weights]
    # Of one gradient twice, Adam's first moment is 1 - 0.9^2 of it.
    expected = pytest.approx(0.19 * CLIP, rel=1e-4)
    assert np.linalg.norm(np.concatenate(moments)) == expected


def test_the_step_on_masters_divides_by_the_scale() -> None:
    step = makers_of("masters", "pytorch", {"model": "S1000"})["ours"]()
    step.prepare()
    step()
    halves = [np.float64(np.float16(g)) for g in gradients("S1000", MASTERS_SCALE)]
    norm = np.linalg.norm(np.concatenate(halves)) / MASTERS_SCALE
    assert step.step.__self__.last_step.norm == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize(
    "wrapper", ["multitask", "rows", "scaling", "masters", "stacked", "AdamOptimizer"]
)
def test_every_wrapped_small_step_moves_every_weight(wrapper: str) -> None:
    setup = {"model": "S20", "wrapper": wrapper}
    before, after = (
        stacked(weights_after(steps, "small_steps", "pytorch", "ours", setup))
        for steps in (0, 1)
    )
    assert len(before) == 20
    assert (before != after).any(axis=(1, 2)).all()


# -- clipped rows ----------------------------------------------------------------------


def check_clipped(rows: Any, rounding: float = 0.0) -> None:
    named = np.zeros(len(rows), bool)
    named[named_rows(len(rows), 0)] = True
    # Rounding of one division; embedding_renorm_ adds 1e-7 to the norm.
    assert np.linalg.norm(rows[named], axis=1) == pytest.approx(LIMIT, rel=1e-5)
    assert np.abs(rows[~named] / np.float32(SHORT) - 1).max() <= rounding
    assert rows.shape[1] == WIDTH


@pytest.mark.parametrize(
    ("backend", "kind"),
    [
        *(("pytorch", name) for name in ("ours", "forward", "dense")),
        *(("tf", name) for name in ("ours", "dense")),
    ],
)
def test_every_clip_shortens_the_named_rows_and_no_others(
    backend: str, kind: str
) -> None:
    setup = {"part": "clip", "vocabulary": "600"}
    step = makers_of("row_clipping", backend, setup)[kind]()
    step.prepare()
    step()
    weight = step.prepare.__self__.weight
    check_clipped(np.asarray(weight.detach() if backend == "pytorch" else weight))


@pytest.mark.parametrize("name", ["ours", "constraint", "bare"])
def test_every_clip_in_keras_shortens_the_named_rows_and_no_others(name: str) -> None:
    model, tables = model_of("keras3"), list[Any]()
    table = model.table

    def kept(*arguments: Any) -> Any:
        tables.append(table(*arguments))
        return tables[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "table", kept)
        setup = {"part": "step", "vocabulary": "600"}
        makers_of("row_clipping", "keras3", setup)[name]()()
    rows = tables[0][0].numpy()
    if name == "bare":
        named = named_rows(600, 0)
        assert np.linalg.norm(rows[named], axis=1).min() > LIMIT
    else:
        # MaxNorm multiplies every row, short ones by 1 to a rounding.
        check_clipped(rows, rounding=1e-6 if name == "constraint" else 0.0)


# -- a step in one call ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["smoke", "MLP"])
def test_a_step_in_one_call_is_the_step_by_hand(name: str) -> None:
    model = model_of("pytorch")
    found = []
    for make in (model.in_one_call, model.by_hand):
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
    model = model_of("pytorch")
    for make in (model.in_one_call, model.by_hand):
        loss, weights = model.problem("smoke", "cpu")
        start = weights[0].detach().clone()
        make(lambda loss=loss: loss() * float("inf"), weights)()
        assert weights[0].equal(start)
