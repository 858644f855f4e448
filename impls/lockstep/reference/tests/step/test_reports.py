"""What the step of ``optimize_loss`` says of the variables that it left alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from lockstep.interface import Array
from lockstep.reference import Variable, optimize_loss

ONES, NAN = np.ones(2, np.float32), np.float32(np.nan)


def taken(a: Array | None, b: Array | None, **options: Any) -> Any:
    """Return a step of gradient descent that was taken with two gradients."""
    variables = [Variable(name, np.zeros(2, np.float32)) for name in "ab"]
    step = optimize_loss(
        lambda: [a, b], "SGD", {}, lambda step: 1.0, variables, **options
    )
    step()
    return step


def test_a_variable_without_a_gradient_is_named() -> None:
    report = taken(ONES, None).last_step
    assert report == (True, "1 of 2 variables updated", ("b",))


def test_only_the_gradient_that_is_not_finite_is_named_though_all_are_clipped() -> None:
    # A norm of NaN would make the other gradient NaN, too.
    step = taken(
        ONES * NAN, ONES, dtype="mixed", loss_scaling="Backoff", clip_gradients=1.0
    )
    assert step.last_step.nonfinite == ("a",)


def test_a_step_with_finite_gradients_is_clipped() -> None:
    step = taken(
        3 * ONES, 0 * ONES, dtype="mixed", loss_scaling="Backoff", clip_gradients=1.0
    )
    norm = np.linalg.norm(step.variables[0].value)
    np.testing.assert_allclose(norm, 1, rtol=1e-6)  # a few roundings in float32
