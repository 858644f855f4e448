"""LARC and clipping as citizens of torch: no waiting, rates, scales, summaries."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from lockstep import reference
from lockstep.messages.step.summaries import SummaryRecord
from lockstep.pytorch import (
    TensorBoardRecorder,
    clip_by_global_norm,
    clip_gradients_by_norm,
    get_regularization_loss,
    mp_regularizer_wrapper,
    post_process_gradients,
)
from lockstep.pytorch.tests.devices import NoHostReads, no_syncs, on_devices

LARC = {"larc_eta": 0.01}
BOTH_MODES = pytest.mark.parametrize("mode", ["clip", "scale"])


def pairs_of(*shapes, device="cpu", dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def draw(shape):
        return torch.randn(shape, generator=generator).to(device, dtype)

    return [(draw(shape), Parameter(draw(shape))) for shape in shapes]


def larc(pairs, lr=0.1, **params):
    larc_params = {**LARC, **params}
    processed = post_process_gradients(pairs, [], lr, None, larc_params)
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
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_large_and_small_tensors_agree_with_the_reference(mode, dtype):
    pairs = pairs_of((300, 401), (5,), (), (1 << 14,), dtype=dtype)
    got = larc(pairs, larc_mode=mode)
    for (gradient, weight), ours in zip(pairs, got, strict=True):
        variable = reference.Variable("w", weight.detach().double().numpy())
        params = {**LARC, "larc_mode": mode}
        ((wanted, _),) = reference.post_process_gradients(
            [(np.asarray(gradient.double()), variable)], [], 0.1, None, params
        )
        rounding = torch.finfo(dtype).eps if dtype == torch.bfloat16 else 2e-6
        np.testing.assert_allclose(ours.double(), wanted, rtol=2 * rounding)
        assert ours.dtype == dtype


@BOTH_MODES
def test_larc_does_not_depend_on_the_loss_scale_once_gradients_are_unscaled(mode):
    pairs = pairs_of((64, 3), (7,))
    scaled = [(g * 65536 / 65536, w) for g, w in pairs]
    assert equal(larc(pairs, larc_mode=mode), larc(scaled, larc_mode=mode))


def test_every_group_can_have_a_rate_of_its_own():
    pairs = pairs_of((4,), (5,), (6,))
    optimizer = torch.optim.SGD([{"params": pairs[0][1]}, {"params": pairs[2][1]}], 0.1)
    optimizer.param_groups[1]["lr"] = 10.0
    together = larc([pairs[0], (None, pairs[1][1]), pairs[2]], lr=[0.1, 5.0, 10.0])
    first, second = (group["lr"] for group in optimizer.param_groups)
    assert equal(together[:1], larc(pairs[:1], lr=first))
    assert equal(together[2:], larc(pairs[2:], lr=torch.tensor(second)))
    assert not equal(together[2:], larc(pairs[2:], lr=first))
    assert together[1] is None


@BOTH_MODES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_in_place_writes_the_same_numbers_into_the_gradients(mode, dtype):
    pairs = pairs_of((3, 4), (5,), dtype=dtype)
    wanted = larc(pairs, larc_mode=mode)
    params = {**LARC, "larc_mode": mode}
    post_process_gradients(pairs, [], 0.1, None, params, in_place=True)
    assert equal([gradient for gradient, _ in pairs], wanted)


def test_otherwise_the_gradients_given_stay_as_they_are():
    pairs = pairs_of((3, 4))
    before = pairs[0][0].clone()
    post_process_gradients(pairs, [], 0.1, 0.5, LARC)
    assert torch.equal(pairs[0][0], before)


def test_clipping_in_place_writes_nothing_below_the_limit():
    gradients = [torch.tensor([3.0, 4.0]), torch.tensor([0.5, 0.0])]
    pairs = [(g, torch.zeros(2, requires_grad=True)) for g in gradients]
    post_process_gradients(pairs, [], 0.1, 8.0, None, in_place=True)
    assert [g._version for g in gradients] == [0, 0]
    post_process_gradients(pairs, [], 0.1, 4.0, None, in_place=True)
    assert [g._version for g in gradients] == [1, 1]


def test_clipping_in_place_keeps_float32_gradients_where_they_are():
    pairs = pairs_of((3, 4), (5,))
    wanted = [g for g, _ in clip_gradients_by_norm(pairs, 0.5)]
    clipped = post_process_gradients(pairs, [], 0.1, 0.5, None, in_place=True)
    assert all(c is g for (c, _), (g, _) in zip(clipped, pairs, strict=True))
    assert equal([gradient for gradient, _ in pairs], wanted)


def test_sparse_gradients_stay_sparse_and_their_duplicates_count_once_summed():
    indices, values = torch.tensor([[1, 1]]), torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    sparse = torch.sparse_coo_tensor(indices, values, (3, 2), check_invariants=True)
    weight = Parameter(torch.ones(3, 2))
    (ours,) = larc([(sparse, weight)], larc_mode="scale")
    (wanted,) = larc([(sparse.to_dense(), weight)], larc_mode="scale")
    assert ours.is_sparse
    torch.testing.assert_close(ours.to_dense(), wanted, rtol=1e-6, atol=0)


def test_a_norm_of_nan_is_not_hidden_by_a_norm_of_zero():
    weight = Parameter(torch.tensor([float("nan"), 1.0]))
    (ours,) = larc([(torch.zeros(2), weight)])
    assert ours.isnan().all()


ASKED = ["gradients", "gradient_norm", "global_gradient_norm", "larc_summaries"]


def test_summaries_are_told_under_their_tags():
    (first, second), record = pairs_of((3,), (2,)), SummaryRecord()
    pairs = [first, (None, second[1])]
    post_process_gradients(
        pairs, [*ASKED, "variables"], 0.1, 1e-3, LARC, record, ["a:0", "b:0"]
    )
    assert set(record.scalars) == {
        "global_gradient_norm",
        "global_clipped_gradient_norm",
        "gradient_norm/a_0",
        "larc_clip_on/a_0",
        "larc_grad_update/a_0",
        "larc_final_lr/a_0",
    }
    assert set(record.histograms) == {"gradients/a_0", "variables/a_0"}
    assert record.scalars["global_clipped_gradient_norm"].item() == pytest.approx(1e-3)
    norm = record.scalars["global_gradient_norm"]
    torch.testing.assert_close(norm, first[0].norm())


def test_histograms_hold_zeros_where_gradients_are_not_finite():
    gradient, record = torch.tensor([1.0, float("nan"), float("-inf")]), SummaryRecord()
    pairs = [(gradient, Parameter(torch.ones(3)))]
    post_process_gradients(pairs, ["gradients"], 0.1, None, None, record)
    assert record.histograms["gradients/parameter_0"].tolist() == [1.0, 0.0, 0.0]


def test_without_a_recorder_or_a_wish_nothing_is_computed(monkeypatch):
    def refuse(*arguments):
        raise AssertionError("a summary was computed")

    monkeypatch.setattr("lockstep.pytorch.base.summaries.norm_in_float32", refuse)
    monkeypatch.setattr("lockstep.pytorch.base.summaries.tensor_norms", refuse)
    pairs = pairs_of((3,))
    post_process_gradients(pairs, ASKED, 0.1, None, LARC)
    post_process_gradients(pairs, ["variables"], 0.1, None, LARC, SummaryRecord())


def test_a_writer_of_tensorboard_gets_tags_values_and_the_step():
    calls = []

    class Writer:
        def add_scalar(self, *arguments):
            calls.append(arguments)

        def add_histogram(self, *arguments):
            calls.append(arguments)

    pairs, recorder = pairs_of((3,)), TensorBoardRecorder(Writer(), 7)
    names = ["gradients", "global_gradient_norm"]
    post_process_gradients(pairs, names, 0.1, None, None, recorder)
    wanted = ["global_gradient_norm", "gradients/parameter_0"]
    assert [(tag, step) for tag, _, step in calls] == [(tag, 7) for tag in wanted]


PAIRS = pairs_of((2,))
ODD = [(torch.ones(3), Parameter(torch.ones(2)))]
HALF = [(torch.ones(2), Parameter(torch.ones(2).half()))]


@pytest.mark.parametrize(
    ("pairs", "lr", "params", "error", "sentence"),
    [
        (PAIRS, 0.1, {"larc_etta": 1.0}, ValueError, "did you mean 'larc_eta'"),
        (
            PAIRS,
            0.1,
            {"larc_eta": 1},
            ValueError,
            r"expected a float, got 1; write 1\.0",
        ),
        (PAIRS, 0.1, {"larc_mode": "clip"}, ValueError, "an entry 'larc_eta', got"),
        (PAIRS, 0.1, {**LARC, "larc_mode": "clap"}, ValueError, "did you mean 'clip'"),
        (PAIRS, 0.1, {"larc_eta": -1.0}, ValueError, r"larc_eta: expected > 0, finite"),
        (PAIRS, 0.1, {**LARC, "epsilon": -1.0}, ValueError, "epsilon: expected >= 0"),
        (PAIRS, 0.1, 0.001, ValueError, "a dict of parameters, got 0.001"),
        (PAIRS, "0.1", LARC, ValueError, "LARC: lr: expected a number or a 0-d"),
        (PAIRS, None, LARC, ValueError, "got None; pass the learning rate"),
        (PAIRS, -0.1, LARC, ValueError, "LARC: lr: expected a finite number >= 0"),
        (PAIRS, float("nan"), LARC, ValueError, "a finite number >= 0, got nan"),
        (PAIRS, [-0.1], LARC, ValueError, "a finite number >= 0, got -0.1"),
        (PAIRS, [0.1, 0.2], LARC, ValueError, r"1 of them, one for each pair, got"),
        (ODD, 0.1, LARC, ValueError, r"shape \[2\] for 'pair 0', got \[3\]"),
        (HALF, 0.1, LARC, TypeError, "dtype float16 for 'pair 0', got float32"),
        ([(None, PAIRS[0][1]), *HALF], 0.1, LARC, TypeError, "float16 for 'pair 1'"),
        ([], 0.1, LARC, ValueError, "at least one"),
        ([torch.ones(2)], 0.1, LARC, TypeError, "pairs"),
        ([(1.0, PAIRS[0][1])], 0.1, LARC, TypeError, "a tensor or None, got float"),
        ([(PAIRS[0][0], "w")], 0.1, LARC, TypeError, "got str; put the gradient first"),
        (
            [PAIRS[0][::-1]],
            0.1,
            LARC,
            TypeError,
            r"\(parameter, tensor\); put the gradi",
        ),
    ],
)
def test_nonsense_is_answered_with_a_sentence(pairs, lr, params, error, sentence):
    with pytest.raises(error, match=sentence):
        post_process_gradients(pairs, [], lr, None, params)


def test_a_writer_that_is_not_wrapped_is_answered_with_how_to_wrap_it():
    writer = type("SummaryWriter", (), {"add_scalar": None})()
    for recorder, sentence in (
        (3, r"recorder: expected scalar\(tag, value\) .* got an int"),
        (writer, r"a SummaryWriter; wrap it: TensorBoardRecorder\(writer, step\)"),
    ):
        with pytest.raises(TypeError, match=sentence):
            post_process_gradients(PAIRS, [], 0.1, None, None, recorder)


@pytest.mark.parametrize("recorder", [None, SummaryRecord()])
def test_names_that_are_not_as_many_as_the_pairs_are_refused(recorder):
    with pytest.raises(ValueError, match="names: expected 1, got 2; name every"):
        post_process_gradients(PAIRS, [], 0.1, None, None, recorder, ["a", "b"])


@pytest.mark.parametrize(
    ("summaries", "error", "sentence"),
    [
        (["gradient_nrm"], ValueError, "did you mean 'gradient_norm'"),
        ("gradients", TypeError, r"a list of names or None, got 'gradients'"),
        (3, TypeError, "a list of names or None, got 3"),
    ],
)
def test_unknown_summaries_are_answered_with_a_sentence(summaries, error, sentence):
    with pytest.raises(error, match=sentence):
        post_process_gradients(PAIRS, summaries, 0.1, None, None)


@pytest.mark.parametrize("limit", [0, -1.0, float("inf"), float("nan"), "1", True])
def test_a_limit_that_is_no_positive_number_is_refused(limit):
    with pytest.raises(ValueError, match="clip_gradients: expected a finite number"):
        clip_gradients_by_norm(PAIRS, limit)
    with pytest.raises(ValueError, match="clip_norm: expected a finite number > 0"):
        clip_by_global_norm([torch.ones(2)], limit)


@pytest.mark.parametrize("t_list", [torch.ones(2, 2), "ab", 3, {"a": torch.ones(2)}])
def test_what_is_no_list_of_tensors_is_refused(t_list):
    with pytest.raises(TypeError, match="a sequence of tensors, got a"):
        clip_by_global_norm(t_list, 1.0)


def test_entries_and_norms_that_are_no_tensors_are_refused():
    with pytest.raises(TypeError, match="at position 1, got str"):
        clip_by_global_norm([torch.ones(2), "b"], 1.0)
    with pytest.raises(TypeError, match=r"use_norm: .* got shape \[2\]"):
        clip_by_global_norm([torch.ones(2)], 1.0, torch.ones(2))


@pytest.mark.parametrize("norm", [0.0, float("inf"), float("nan")])
def test_norms_of_gradients_that_vanished_or_overflowed_are_taken(norm):
    _, given = clip_by_global_norm([torch.ones(2)], 1.0, norm)
    torch.testing.assert_close(given, torch.tensor(norm), equal_nan=True)


def test_the_norm_may_be_given_left_out_or_come_with_an_iterator():
    tensors = [torch.tensor([3.0, 4.0]), None, torch.tensor(12.0)]
    clipped, norm = clip_by_global_norm(iter(tensors), 6.5)
    again, _ = clip_by_global_norm(tensors, 6.5, 13)
    assert norm.item() == 13.0
    assert equal([clipped[0], clipped[2]], [again[0], again[2]])
    assert (clipped[1], clipped[2].shape) == (None, ())


def test_a_total_of_penalties_can_be_differentiated():
    weight = Parameter(torch.tensor([1.0, 2.0]))
    l2 = mp_regularizer_wrapper(lambda w: w.square().sum() / 2)
    half = l2(Parameter(torch.ones(2).half()))
    total = get_regularization_loss(losses={"enc/w": l2(weight), "dec/w": half})
    total.backward()
    assert torch.equal(weight.grad, weight.detach())


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({}, ValueError, "only a TensorFlow graph collects them"),
        ({"losses": [torch.ones(())], "scope": "a"}, ValueError, "without names"),
        ({"losses": {"a": torch.ones(2)}}, ValueError, r"0-d tensors, got shape \[2\]"),
        ({"losses": 3}, TypeError, "a mapping or an iterable"),
        ({"losses": {}, "scope": "("}, ValueError, "a regular expression, got '\\('"),
    ],
)
def test_losses_that_cannot_be_summed_are_answered(options, error, sentence):
    with pytest.raises(error, match=sentence):
        get_regularization_loss(**options)


def test_integers_are_clipped_in_float32_as_elsewhere():
    clipped, norm = clip_by_global_norm([torch.tensor([3, 4])], 2.5)
    assert clipped[0].tolist() == [1.5, 2.0]
    assert norm.item() == 5.0


@BOTH_MODES
def test_a_new_weight_of_zeros_learns_at_the_full_rate(mode) -> None:
    weight, gradient = Parameter(torch.zeros(2)), torch.tensor([3.0, 4.0])
    larc = {**LARC, "larc_mode": mode}
    ((scaled, _),) = post_process_gradients([(gradient, weight)], [], 0.1, None, larc)
    assert torch.equal(scaled, gradient)
