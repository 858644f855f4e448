"""The page on Adams shows the rules that it says it shows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.pages.adams import ADAMS, adam_insert, moves

ROUNDING = 1e-4
"""Relative: 1 - beta2 is off by 5e-5 where it is taken in float32, as TF1 does."""


@pytest.mark.parametrize(
    ("name", "epsilon"),
    [
        ("TensorFlow 1", 1e-8 / 0.001**0.5),
        ("Keras 3", 1e-7 / 0.001**0.5),
        ("PyTorch", 1e-8),
    ],
)
def test_the_first_step_is_that_of_the_formula(name: str, epsilon: float) -> None:
    gradient = np.logspace(-10, 0, 21)
    (weights,) = moves(ADAMS[name], [gradient.astype(np.float32)], [1])
    expected = -gradient / (gradient + epsilon)
    np.testing.assert_allclose(weights, expected, rtol=ROUNDING)


def test_the_rule_of_pytorch_is_its_own() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    gradients = list(np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32))
    weight = torch.zeros(5, requires_grad=True)
    adam = torch.optim.Adam([weight], 1.0, foreach=False)
    for gradient in gradients:
        weight.grad = torch.tensor(gradient)
        adam.step()
    (ours,) = moves(ADAMS["PyTorch"], gradients, [len(gradients)])
    # torch's float32 square root is not correctly rounded on every CPU.
    np.testing.assert_allclose(ours, weight.detach().numpy(), rtol=2e-6, atol=1e-7)


def test_the_figure_and_its_data_are_files(tmp_path: Path) -> None:
    insert = adam_insert(tmp_path / "adam")
    assert "generated/adam/first.dark.svg" in insert
    data = pd.read_csv(tmp_path / "adam" / "first.csv")
    assert len(data) > 50
    # With the steps, TensorFlow 1's epsilon loses its factor against PyTorch's.
    early, late = (
        (data[f"PyTorch, step {step}"] / data[f"TensorFlow 1, step {step}"]).max()
        for step in (1, 1000)
    )
    assert early > 20 and late < 2
