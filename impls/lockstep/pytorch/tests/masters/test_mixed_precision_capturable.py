"""Masters on PyTorch: a step that never waits for the device."""

from __future__ import annotations

import copy
import warnings

import pytest
import torch

from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionOptimizerWrapper,
)
from lockstep.pytorch.tests.devices import no_syncs, on_devices
from lockstep.pytorch.tests.masters.models import (
    assert_same,
    everything,
    mixed,
    train,
    wrapped,
)
from lockstep.pytorch.tests.subjects import ALL, batches

FUSED = ["Adam fused", "SGD fused"]
SCALES = {
    "number": lambda: 8,
    "below one": lambda: 0.5,
    "dynamic": lambda: DynamicLossScale(4.0, 2),
    "hysteresis": lambda: DynamicLossScale(4.0, 2, hysteresis=2),
    "tolerance": lambda: DynamicLossScale(4.0, 2, tolerance=0.5),
}
PATTERN = "!+a!!b0+!!+"


def started(name="Adam fused", loss_scale=8.0, capturable=True, **options):
    model = mixed()
    if name == "Adam fused":
        return model, wrapped(model, name, loss_scale, capturable=capturable, **options)
    sgd = torch.optim.SGD(model.named_parameters(), 0.1, 0.9, fused=True)
    made = MixedPrecisionOptimizerWrapper(
        sgd, loss_scale, capturable=capturable, **options
    )
    return model, made


COUNTED = "loss_scale", "skipped"


def numbers(optimizer):
    """Return what the loss scale counts, as saved."""
    group = optimizer.state_dict()["param_groups"][0]
    return {k: float(v) for k, v in group.items() if k.startswith(COUNTED)}


@pytest.mark.parametrize("clip_norm", [None, 0.5])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", FUSED)
def test_it_gives_the_bits_of_the_step_that_waits(name, scale, clip_norm):
    found = []
    for capturable in (False, True):
        options = {"capturable": capturable, "clip_norm": clip_norm}
        model, optimizer = started(name, SCALES[scale](), **options)
        reports = []
        for seed, letter in enumerate(PATTERN):
            train(model, optimizer, letter, seed)
            reports.append((optimizer.last_step, vars(optimizer.last_step)))
        found.append((everything(model, optimizer), numbers(optimizer), reports))
    assert_same(found[1][0], found[0][0])
    assert found[1][1:] == found[0][1:]


@on_devices
def test_no_step_waits(device):
    model = mixed().to(device)
    optimizer = wrapped(
        model, "Adam fused", DynamicLossScale(4.0, 2), capturable=True, clip_norm=0.5
    )
    for inputs in batches(3):
        optimizer.zero_grad()
        hidden = model.body(inputs.to(device).half())
        loss = model.a(hidden).float().sum() + model.b(hidden.float()).sum()
        optimizer.scale_loss(loss).backward()
        with no_syncs(device):
            optimizer.step()
    assert optimizer.last_step.applied
    assert optimizer.loss_scale == 8.0


@pytest.mark.parametrize("way", ["deepcopy", "state dict", "plain"])
@pytest.mark.parametrize("scale", ["dynamic", "hysteresis", "tolerance"])
def test_a_copy_and_a_checkpoint_go_on_with_everything_that_is_counted(scale, way):
    model, optimizer = started("Adam fused", SCALES[scale]())
    train(model, optimizer, "+!+!")
    if way == "deepcopy":
        twin, other = copy.deepcopy((model, optimizer))
    else:
        twin, other = started("Adam fused", SCALES[scale](), way != "plain")
        twin.load_state_dict(model.state_dict())
        other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert numbers(other) == numbers(optimizer)
    assert len(numbers(other)) == (4 if scale == "dynamic" else 6)
    train(model, optimizer, "!+!++")
    train(twin, other, "!+!++")
    assert_same(everything(twin, other), everything(model, optimizer))
    assert numbers(other) == numbers(optimizer)


def test_what_was_saved_does_not_move_with_the_run():
    model, optimizer = started("Adam fused", DynamicLossScale(4.0, 1))
    saved = optimizer.state_dict()
    train(model, optimizer, "++")
    assert saved["param_groups"][0]["loss_scale"] == 4.0
    assert optimizer.loss_scale == 16.0


def test_a_stall_at_the_floor_is_warned_of_when_the_report_is_read():
    model, optimizer = started("Adam fused", DynamicLossScale(2.0), floor_patience=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(model, optimizer, "!!!!")
    with pytest.warns(UserWarning, match=r"Wrapper: .* 4 skipped in a row .* a\.bias"):
        assert not optimizer.last_step.applied


@pytest.mark.parametrize("name", ["SGD", "Adam", "TF1 Adam"])
def test_an_optimizer_that_cannot_skip_by_itself_is_refused(name):
    model = mixed()
    made = ALL[name](model.parameters())
    with pytest.raises(ValueError, match="a fused optimizer for capturable=True"):
        MixedPrecisionOptimizerWrapper(made, 8, capturable=True)
    assert made.param_groups[0]["params"][0] is model.body.weight


@pytest.mark.parametrize(
    ("loss_scale", "options"),
    [(AutomaticLossScaler(), {}), (8.0, {"strict": True}), (8, {"at_floor": "raise"})],
)
def test_what_would_have_to_wait_is_refused(loss_scale, options):
    with pytest.raises(ValueError, match=r"capturable=True, got .*; .*\.$"):
        started("Adam fused", loss_scale, **options)
