"""The text and the transformer that tasks share: split, causality, learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.tasks.byte_transformer.data import (
    Shape,
    draw_windows,
    first_weights,
    held_out_windows,
    split,
)

torch = pytest.importorskip("torch", reason="torch is not installed")

SMALL = Shape(width=16, layers=1, heads=2, context=8)


def stream() -> np.random.Generator:
    return np.random.default_rng(0)


def model() -> Any:
    from harness.tasks.byte_transformer.torch_model import Transformer

    return Transformer(SMALL, first_weights(SMALL, stream()))


def test_a_tenth_of_the_paragraphs_is_held_out_and_none_is_trained_on() -> None:
    training, held_out = (
        set(part.tobytes().decode("utf-8").split("\n\n")) for part in split()
    )
    assert 0.08 < len(held_out) / (len(training) + len(held_out)) < 0.12
    assert not training & held_out


def test_windows_are_pieces_of_the_text_from_its_start_to_its_end() -> None:
    text = split()
    drawn = draw_windows(text.training, 3, 2, 8, stream())
    assert drawn.shape == (3, 2, 9)
    whole = text.training.tobytes()
    assert all(row.astype(np.uint8).tobytes() in whole for row in drawn[0])
    held_out = held_out_windows(text.held_out, 5, 8)
    assert np.array_equal(held_out[0], text.held_out[:9])
    assert np.array_equal(held_out[-1], text.held_out[-9:])


def test_a_later_byte_changes_no_logits_of_those_before_it() -> None:
    seen = torch.arange(8)[None]
    changed = seen.clone()
    changed[0, 5] = 77
    one, other = model()(seen)[0], model()(changed)[0]
    assert torch.equal(one[:5], other[:5])
    assert (one[5:] != other[5:]).any(-1).all()


def test_training_learns_the_text() -> None:
    text, net = split(), model()
    windows = torch.from_numpy(draw_windows(text.training, 60, 8, 8, stream())).long()
    held_out = torch.from_numpy(held_out_windows(text.held_out, 32, 8)).long()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for batch in windows:
        optimizer.zero_grad()
        net.loss(batch).backward()
        optimizer.step()
    assert net.bits_per_byte(held_out) < 5.0
