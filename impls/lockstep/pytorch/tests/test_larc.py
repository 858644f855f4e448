"""LARC: ratios, rates and bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from lockstep import reference
from lockstep.pytorch import post_process_gradients
from lockstep.pytorch.tests.devices import NoHostReads, no_syncs, on_devices

LARC = {"larc_eta": 0.01}
BOTH_MODES = pytest.mark.parametrize("mode", ["clip", "scale"])


def pairs_of(*shapes, device="cpu", dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(shape):
        return torch.randn(shape, generator=generator).to(device, dtype)

    return [(draw(shape), Parameter(draw(shape))) for shape in shapes]


def larc(pairs, lr=0.1, in_place=False, **params):
    processed = post_process_gradients(
        pairs, [], lr, None, {**LARC, **params}, in_place=in_place
    )
    return [gradient for gradient, _ in processed]


def equal(ours, theirs):
    return all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@BOTH_MODES
@on_devices
def test_larc_never_waits_for_the_device(mode, device):
    pairs = [*pairs_of((3, 4), (20000,), (2,), device=device), (None, Parameter())]
    with no_syncs(device), NoHostReads():
        larc(pairs, larc_mode=mode)


def test_the_mode_that_watches_for_waiting_notices_it():
    with pytest.raises(AssertionError, match="read from a tensor"), NoHostReads():
        bool(torch.ones(()) > 0)


@BOTH_MODES
@pytest.mark.parametrize("options", [{}, {"min_update": 0.5}, {"epsilon": 3.0}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_large_and_small_tensors_agree_with_the_reference(mode, dtype, options):
    pairs = pairs_of((300, 401), (5,), (), (1 << 14,), dtype=dtype)
    params = {**LARC, "larc_mode": mode, **options}
    got = larc(pairs, **params)
    for (gradient, weight), ours in zip(pairs, got, strict=True):
        variable = reference.Variable("w", weight.detach().double().numpy())
        ((expected, _),) = reference.post_process_gradients(
            [(np.asarray(gradient.double()), variable)], [], 0.1, None, params
        )
        rounding = torch.finfo(dtype).eps if dtype == torch.bfloat16 else 2e-6
        np.testing.assert_allclose(ours.double(), expected, rtol=2 * rounding)
        assert ours.dtype == dtype


@BOTH_MODES
def test_larc_does_not_depend_on_the_loss_scale_once_gradients_are_unscaled(mode):
    pairs = pairs_of((64, 3), (7,))
    scaled = [(g * 65536 / 65536, w) for g, w in pairs]
    assert equal(larc(pairs, larc_mode=mode), larc(scaled, larc_mode=mode))


@BOTH_MODES
def test_another_order_of_pairs_changes_no_bit(mode):
    pairs = pairs_of((3, 4), (5,), (5,), (20000,))
    expected = larc(pairs, larc_mode=mode)[::-1]
    assert equal(larc(pairs[::-1], larc_mode=mode), expected)


def test_every_group_can_have_a_rate_of_its_own():
    pairs = pairs_of((4,), (5,), (6,))
    together = larc([pairs[0], (None, pairs[1][1]), pairs[2]], lr=[0.1, 5.0, 10.0])
    assert equal(together[:1], larc(pairs[:1], lr=0.1))
    assert equal(together[2:], larc(pairs[2:], lr=torch.tensor(10.0)))
    assert not equal(together[2:], larc(pairs[2:], lr=0.1))
    assert together[1] is None


@BOTH_MODES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_in_place_writes_the_same_numbers_into_the_gradients(mode, dtype):
    pairs = pairs_of((3, 4), (5,), dtype=dtype)
    before = [gradient.clone() for gradient, _ in pairs]
    expected = larc(pairs, larc_mode=mode)
    assert equal([gradient for gradient, _ in pairs], before)
    larc(pairs, larc_mode=mode, in_place=True)
    assert equal([gradient for gradient, _ in pairs], expected)


def test_a_ratio_beyond_float16_is_its_largest_number():
    weight = Parameter(torch.full((1,), 2.0**15).half())
    gradient = torch.full((1,), 2.0**-14).half()
    (scaled,) = larc([(gradient, weight)], larc_eta=1.0, larc_mode="scale")
    assert scaled.item() == pytest.approx(65504 * 2.0**-14)


def test_sparse_gradients_stay_sparse_and_their_duplicates_count_once_summed():
    indices, values = torch.tensor([[1, 1]]), torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    sparse = torch.sparse_coo_tensor(indices, values, (3, 2), check_invariants=True)
    weight = Parameter(torch.ones(3, 2))
    (ours,) = larc([(sparse, weight)], larc_mode="scale")
    (expected,) = larc([(sparse.to_dense(), weight)], larc_mode="scale")
    assert ours.is_sparse
    torch.testing.assert_close(ours.to_dense(), expected, rtol=1e-6, atol=0)


@BOTH_MODES
@pytest.mark.parametrize("zero", ["weight", "gradient", "rate"])
def test_where_a_norm_or_the_rate_is_zero_the_gradient_stays(mode, zero):
    weight = Parameter(torch.full((2,), float(zero != "weight")))
    gradient = torch.tensor([3.0, 4.0]) * (zero != "gradient")
    (scaled,) = larc([(gradient, weight)], lr=0.1 * (zero != "rate"), larc_mode=mode)
    assert torch.equal(scaled, gradient) == (zero != "rate" or mode == "clip")


def test_a_norm_of_nan_is_not_hidden_by_a_norm_of_zero():
    weight = Parameter(torch.tensor([float("nan"), 1.0]))
    assert larc([(torch.zeros(2), weight)])[0].isnan().all()


PAIRS = pairs_of((2,))
ODD = [(torch.ones(3), Parameter(torch.ones(2)))]
HALF = [(torch.ones(2), Parameter(torch.ones(2).half()))]
BAD = {
    "an unknown name": (PAIRS, 0.1, {"larc_etta": 1.0}, ValueError),
    "an integer": (PAIRS, 0.1, {"larc_eta": 1}, ValueError),
    "no eta": (PAIRS, 0.1, {"larc_mode": "clip"}, ValueError),
    "an unknown mode": (PAIRS, 0.1, {**LARC, "larc_mode": "clap"}, ValueError),
    "a negative eta": (PAIRS, 0.1, {"larc_eta": -1.0}, ValueError),
    "an eta of 0": (PAIRS, 0.1, {"larc_eta": 0.0}, ValueError),
    "a negative epsilon": (PAIRS, 0.1, {**LARC, "epsilon": -1.0}, ValueError),
    "an infinite ratio": (PAIRS, 0.1, {**LARC, "min_update": torch.inf}, ValueError),
    "a number": (PAIRS, 0.1, 0.001, ValueError),
    "a rate in text": (PAIRS, "0.1", LARC, ValueError),
    "no rate": (PAIRS, None, LARC, ValueError),
    "a negative rate": (PAIRS, -0.1, LARC, ValueError),
    "a rate of NaN": (PAIRS, float("nan"), LARC, ValueError),
    "a list with a negative rate": (PAIRS, [-0.1], LARC, ValueError),
    "too many rates": (PAIRS, [0.1, 0.2], LARC, ValueError),
    "another shape": (ODD, 0.1, LARC, ValueError),
    "another dtype": (HALF, 0.1, LARC, TypeError),
    "another dtype, later": ([(None, PAIRS[0][1]), *HALF], 0.1, LARC, TypeError),
    "no pairs": ([], 0.1, LARC, ValueError),
    "no pair": ([torch.ones(2)], 0.1, LARC, TypeError),
    "a number as gradient": ([(1.0, PAIRS[0][1])], 0.1, LARC, TypeError),
    "a name": ([(PAIRS[0][0], "w")], 0.1, LARC, TypeError),
    "swapped": ([PAIRS[0][::-1]], 0.1, LARC, TypeError),
}


@pytest.mark.parametrize(("pairs", "lr", "params", "error"), BAD.values(), ids=BAD)
def test_bad_input_is_refused_before_anything_is_written(pairs, lr, params, error):
    before = PAIRS[0][0].clone()
    with pytest.raises(error):
        post_process_gradients(pairs, [], lr, None, params, in_place=True)
    assert torch.equal(PAIRS[0][0], before)
