"""The rules of the script on Adams are those of the frameworks."""

from __future__ import annotations

import runpy
from typing import Any

import numpy as np
import pytest

from harness.processes.children import ROOT
from lockstep.reference import AdamOptimizer, Variable

GRADIENTS = np.random.default_rng(0).normal(size=(9, 5)) * 1e-7


@pytest.fixture(scope="module")
def updates() -> Any:
    """The function of the script that computes the rules."""
    return runpy.run_path(str(ROOT / "docs/examples/adam_epsilons.py"))["updates"]


def test_the_rule_of_tensorflow_1_is_that_of_the_reference(updates: Any) -> None:
    optimizer, weight = AdamOptimizer(1.0), Variable("w", np.zeros(5, np.float32))
    for gradient in GRADIENTS.astype(np.float32):
        optimizer.apply_gradients([(gradient, weight)])
    went = -sum(updates("TensorFlow 1", GRADIENTS))
    np.testing.assert_allclose(weight.value, went, rtol=1e-4, atol=1e-5)


def test_the_rule_of_pytorch_is_that_of_pytorch(updates: Any) -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    weight = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([weight], 1.0)
    for gradient in GRADIENTS:
        weight.grad = torch.tensor(gradient)
        adam.step()
    went = -sum(updates("PyTorch", GRADIENTS))
    np.testing.assert_allclose(weight.detach().numpy(), went, rtol=1e-9)


@pytest.mark.parametrize("backend", ["keras3"])
def test_the_rule_of_keras_is_that_of_keras(backend: str, updates: Any) -> None:
    keras = pytest.importorskip("keras", reason="needs keras")
    weight = keras.Variable(np.zeros(5, np.float32))
    adam = keras.optimizers.Adam(1.0)
    for gradient in GRADIENTS.astype(np.float32):
        adam.apply([keras.ops.convert_to_tensor(gradient)], [weight])
    went = -sum(updates("Keras 3", GRADIENTS))
    np.testing.assert_allclose(np.asarray(weight), went, rtol=1e-4, atol=1e-5)
