"""Gradients of the loss of which ``grad_loss`` is the upstream gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lockstep.reference import GradientDescentOptimizer, Rows, Variable

ONES = np.ones((1, 2), np.float32)


@pytest.mark.parametrize(("options", "factor"), [({}, 1.0), ({"grad_loss": 3.0}, 3.0)])
def test_every_kind_of_gradient_is_multiplied_by_it(
    options: dict[str, Any], factor: float
) -> None:
    w = Variable("w", ONES)
    gradients = [
        ONES,
        Rows(np.array([0]), ONES, (1, 2)),
        lambda upstream: upstream * ONES,
    ]
    for gradient in gradients:
        opt = GradientDescentOptimizer(0.1)
        ((got, _),) = opt.compute_gradients(lambda g=gradient: [g], [w], **options)
        values = got.values if isinstance(got, Rows) else got
        assert values.tolist() == [[factor, factor]]
        assert values.dtype == np.float32


def test_an_absent_gradient_stays_absent() -> None:
    w, opt = Variable("w", ONES), GradientDescentOptimizer(0.1)
    assert opt.compute_gradients(lambda: [None], [w], grad_loss=3.0) == [(None, w)]
