"""Arguments of ``optimize_loss`` in NumPy that are mistaken, and their sentences."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from lockstep import reference as ls
from lockstep.errors import DtypeError, ShapeError
from lockstep.messages.tests.step_mistakes import mistakes

weight = ls.Variable("weight", [1.0, 2.0], np.float32)
ONES = np.ones(2, np.float32)


def step_of(**options):
    given = {"loss": lambda: [ONES], "optimizer": "SGD", "optimizer_params": None}
    given |= {"learning_rate_decay_fn": lambda step: 0.1, "var_list": [weight]}
    return ls.optimize_loss(**{**given, **options})


def counted(step):
    return step.micro_step, int(step.global_step.value)


REFUSED = [
    *mistakes(ls, weight),
    ({"var_list": weight}, ValueError, "var_list.*a Variable; put it into a list"),
    ({"optimizer": lambda learning_rate: 3}, TypeError, "an int"),
]


@pytest.mark.parametrize(
    ("options", "error", "words"), REFUSED, ids=[row[2] for row in REFUSED]
)
def test_a_common_mistake_is_told_in_one_sentence(options, error, words) -> None:
    with pytest.raises(error, match=words) as caught:
        step_of(**options)
    assert str(caught.value).startswith("optimize_loss: ")


@pytest.mark.parametrize("flag", ["False", 2, np.array([True, False])], ids=str)
@pytest.mark.parametrize("asked", [False, True], ids=["given", "returned"])
def test_a_flag_that_is_none_adds_nothing(flag, asked) -> None:
    step = step_of(iter_size=2)
    with pytest.raises(ValueError, match="a bool, a 0-d bool"):
        step(skip_update=(lambda: flag) if asked else flag)
    assert counted(step) == (0, 0)


def test_a_function_that_returns_a_function_is_no_flag() -> None:
    step = step_of(iter_size=2)
    with pytest.raises(ValueError, match="a bool, a 0-d bool"):
        step(skip_update=lambda: lambda: True)
    assert counted(step) == (0, 0)


@pytest.mark.parametrize("flag", [True, np.array(True), np.True_], ids=repr)
def test_a_bool_and_an_array_of_one_say_that_a_call_only_adds(flag) -> None:
    step = step_of(iter_size=2, skip_update_ph=flag)
    step(), step(), step()
    assert counted(step) == (3, 0)


@pytest.mark.parametrize("got", [3, ls.NovoGrad, object()], ids=["3", "class", "any"])
def test_what_is_no_optimizer_has_no_pipeline(got) -> None:
    with pytest.raises(TypeError, match="pass the object that takes the steps"):
        ls.pipeline_of(got)


def test_the_pipeline_of_a_step_is_its_own() -> None:
    step = step_of(iter_size=2, clip_gradients=1.0)
    expected = ("accumulate", "norm", "clip", "update")
    assert ls.pipeline_of(step) == step.pipeline == expected


ANSWERS = {
    "too few": ([], ValueError, "expected a list of 1 gradients, got 0"),
    "too many": ([ONES, ONES], ValueError, "expected a list of 1 gradients, got 2"),
    "a number": (3.0, TypeError, "got a float; return one for each variable"),
    "none": (None, TypeError, "got a NoneType"),
    "no list": (ONES, TypeError, "got an ndarray"),
    "shape": ([np.ones(3, np.float32)], ValueError, r"shape \[2\] for 'weight'"),
}


@pytest.mark.parametrize(("answer", "error", "words"), ANSWERS.values(), ids=ANSWERS)
def test_the_loss_answers_a_gradient_for_each_variable(answer, error, words) -> None:
    step = step_of(loss=lambda: answer, iter_size=2)
    with pytest.raises(error, match=words):
        step()
    assert counted(step) == (0, 0)


def test_gradients_with_extras_make_the_step_return_a_tuple() -> None:
    weight = ls.Variable("w", [2.0])
    gradients = [np.ones(1)]
    step = ls.optimize_loss(lambda: (gradients, "extra", 3), "SGD", {}, 0.5, [weight])
    assert step() == (None, "extra", 3)
    assert (weight.value.item(), step.learning_rate) == (1.5, 0.5)
    assert repr(step) == (
        "optimize_loss(GradientDescentOptimizer, 1 variable; step 1, rate 0.5; update)"
    )


@pytest.mark.parametrize("iter_size", [1, 2])
def test_a_gradient_of_another_shape_is_an_error_of_the_loss(iter_size):
    step = step_of(loss=lambda: [np.ones(3, np.float32)], iter_size=iter_size)
    with pytest.raises(ShapeError, match="in the order of var_list"):
        step()


def test_a_micro_batch_in_another_dtype_is_refused_before_it_is_added():
    step = step_of(loss=lambda: [np.ones(2)], iter_size=2)
    with pytest.raises(DtypeError, match=r"optimize_loss: .* float32 for 'weight'"):
        step()
    assert step.accumulators == [None]


def ones() -> list[np.ndarray]:
    return [np.ones(2, np.float32)]


def test_a_step_with_a_number_as_its_rate_can_be_pickled() -> None:
    """A file of pickle is how the reference is saved, here within a sum."""
    variable = ls.Variable("weight", [1.0, 2.0], np.float32)
    step = ls.optimize_loss(
        ones, "Momentum", {"momentum": 0.5}, 0.5, [variable], iter_size=2
    )
    for _ in range(3):
        step()
    loaded = pickle.loads(pickle.dumps(step))
    for each in (step, loaded):
        each()
    assert loaded.learning_rate == 0.5
    assert (
        loaded.variables[0].value.tolist() == variable.value.tolist() == [-0.25, 0.75]
    )


def test_a_number_is_no_model():
    with pytest.raises(ValueError, match="optimize_loss: model: "):
        step_of(model=3)
