"""The summaries of a step: what is told, when, and in TensorBoard's own files."""

from __future__ import annotations

import pytest
import torch
from torch.nn import Parameter

from lockstep import pytorch as ls
from lockstep.pytorch import OPTIMIZER_SUMMARIES


class Writer:
    """Keep what a ``SummaryWriter`` would write."""

    def __init__(self) -> None:
        self.scalars: dict[tuple[str, int], float] = {}
        self.histograms: dict[tuple[str, int], list[float]] = {}

    def add_scalar(self, tag, value, global_step) -> None:
        self.scalars[tag, global_step] = float(value)

    def add_histogram(self, tag, values, global_step) -> None:
        self.histograms[tag, global_step] = values.tolist()


def step_of(optimize_loss=ls.optimize_loss, **options):
    """Return a step whose gradient is (3, 4), rate 0.5 at first and 0.25 then."""
    weight = Parameter(torch.tensor([6.0, 8.0]))
    direction = torch.tensor([3.0, 4.0])
    return optimize_loss(
        lambda factor=1.0: factor * (weight * direction).sum(),
        "SGD",
        {},
        lambda step: 0.5 / (1 + int(step)),
        [("layer:weight", weight)],
        **options,
    )


def test_the_default_ones_are_told_at_each_step() -> None:
    step, writer = step_of(), Writer()
    step.summaries_to(writer)
    step(), step()
    assert writer.scalars == {
        ("learning_rate", 1): 0.5,
        ("global_gradient_norm", 1): 5.0,
        ("learning_rate", 2): 0.25,
        ("global_gradient_norm", 2): 5.0,
    }
    assert not writer.histograms


def test_all_eight_are_told_under_the_tags_of_the_original() -> None:
    step, writer = (
        step_of(
            summaries=OPTIMIZER_SUMMARIES,
            dtype="mixed",
            loss_scaling=8,
            larc_params={"larc_eta": 0.125},
        ),
        Writer(),
    )
    step.summaries_to(writer)
    step()
    ratio = 0.125 * 10 / (0.5 * 5)
    assert writer.scalars == {
        ("learning_rate", 1): 0.5,
        ("loss_scale", 1): 8.0,
        ("global_gradient_norm", 1): 5.0,
        ("gradient_norm/layer_weight", 1): 5.0,
        ("variable_norm/layer_weight", 1): 10.0,
        ("larc_clip_on/layer_weight", 1): 1.0,
        ("larc_grad_update/layer_weight", 1): pytest.approx(ratio),
        ("larc_final_lr/layer_weight", 1): pytest.approx(0.5 * ratio),
    }
    assert writer.histograms == {
        ("gradients/layer_weight", 1): [3.0, 4.0],
        ("variables/layer_weight", 1): [6.0, 8.0],
    }


def test_the_norm_is_told_before_and_after_it_is_clipped() -> None:
    step, writer = step_of(clip_gradients=2.5), Writer()
    step.summaries_to(writer)
    step()
    assert writer.scalars["global_gradient_norm", 1] == 5.0
    assert writer.scalars["global_clipped_gradient_norm", 1] == 2.5


def test_nothing_is_told_of_micro_batches_and_skipped_steps() -> None:
    step, writer = step_of(dtype="mixed", loss_scaling=8, iter_size=2), Writer()
    step.summaries_to(writer)
    step()
    assert not writer.scalars
    step(float("inf"))
    assert not step.last_step.applied
    assert not writer.scalars
    step(), step()
    assert ("learning_rate", 1) in writer.scalars
