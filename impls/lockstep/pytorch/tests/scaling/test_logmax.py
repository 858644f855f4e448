"""The logarithm that LogMax takes of the largest gradient, at its limits."""

from __future__ import annotations

import numpy as np
import pytest

from lockstep.pytorch import AutomaticLossScaler

SMALLEST_NORMAL = 2.0**-126
SUBNORMAL = float(np.nextafter(np.float32(SMALLEST_NORMAL), 0))


@pytest.mark.parametrize("amax", [SMALLEST_NORMAL, 1.0, 2.0**100])
def test_the_mean_is_of_the_binary_logarithm(amax) -> None:
    scaler = AutomaticLossScaler("LogMax", {"beta1": 0.5})
    scaler.update_op(False, amax)
    # The quotient of two float32 logarithms is off by half an ULP each.
    expected = pytest.approx(np.log2(amax) / 2, rel=2**-23)
    assert scaler.state["x_hat"] == expected


@pytest.mark.parametrize("amax", [0.0, SUBNORMAL])
def test_a_step_without_a_gradient_changes_no_statistic(amax) -> None:
    scaler = AutomaticLossScaler("LogMax")
    scaler.update_op(False, 4.0)
    before = scaler.state
    scaler.update_op(False, amax)
    assert scaler.state == {**before, "iteration": 2}


def test_strict_keeps_the_original_s_quirks() -> None:
    scaler = AutomaticLossScaler("LogMax", strict=True)
    scaler.update_op(True, 1.0)
    assert scaler.loss_scale == 1.0
    scaler.update_op(False, 0.0)
    assert scaler.loss_scale.isnan()
    with pytest.raises(ValueError, match="expected float"):
        AutomaticLossScaler("LogMax", {"scale_max": 8}, strict=True)


@pytest.mark.parametrize("algorithm", ["Backoff", "LogMax"])
def test_whole_numbers_are_numbers(algorithm) -> None:
    scalers = [AutomaticLossScaler(algorithm, {"scale_max": m}) for m in (64, 64.0)]
    for scaler in scalers:
        scaler.update_op(False, 2.0)
    assert scalers[0].state == scalers[1].state
