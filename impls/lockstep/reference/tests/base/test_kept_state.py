"""State that one step leaves to the next, in the reference."""

from __future__ import annotations

import numpy as np

from lockstep import reference
from lockstep.interface import Rows


def test_a_square_that_overflows_is_forgotten_by_the_next_step() -> None:
    w = reference.Variable("w", [1.0], np.float32)
    optimizer = reference.NovoGrad(0.5, beta2=0.5)
    found = []
    for gradient in (2.0, 1e30, 3.0, 1.0):
        optimizer.apply_gradients([(np.float32([gradient]), w)])
        slot = optimizer.get_slot(w, "second_moment")
        assert slot is not None
        found.append(float(slot))
    assert found == [4.0, np.inf, 9.0, 5.0]


def test_each_micro_batch_updates_the_rows_that_it_names() -> None:
    table = reference.Variable("table", np.zeros((4, 1)), np.float32)
    batches = [
        Rows(np.array(k), np.float32([[2], [4]]), (4, 1)) for k in ([0, 1], [3, 1])
    ]
    given = iter(batches)
    step = reference.optimize_loss(
        lambda: [next(given)], "SGD", {}, lambda step: 1.0, [table], iter_size=2
    )
    step()
    step()
    assert table.value.ravel().tolist() == [-1.0, -4.0, 0.0, -1.0]


def test_a_square_below_one_is_kept_for_the_next_step() -> None:
    w = reference.Variable("w", [1.0], np.float32)
    optimizer = reference.NovoGrad(0.5, beta2=0.5)
    for gradient in (0.5, 1.0):
        optimizer.apply_gradients([(np.float32([gradient]), w)])
    assert optimizer.get_slot(w, "second_moment") == 0.625
