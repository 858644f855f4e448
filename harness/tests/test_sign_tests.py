"""Sign-flip tests and Holm's correction: against SciPy, by hand, and by simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from harness.statistics import Floats, beyond, holm, sign_flip, within

INF = np.inf

TRIALS = 2000
UPPER = 0.05 + 3 * (0.05 * 0.95 / TRIALS) ** 0.5
"""A share of 0.05 in 2000 trials has a binomial deviation of 0.0049; three of them."""

SHAPES: dict[str, Callable[[np.random.Generator, int], Floats]] = {
    "normal": lambda rng, n: rng.normal(size=n),
    "log ratio of exponential": lambda rng, n: np.log(
        rng.exponential(size=n) / rng.exponential(size=n)
    ),
    "difference of lognormal": lambda rng, n: (
        rng.lognormal(sigma=2, size=n) - rng.lognormal(sigma=2, size=n)
    ),
}
"""Effects of exchangeable arms: symmetric about 0, with light and heavy tails."""


def test_sign_flip_is_scipys_exact_permutation_test() -> None:
    effects = np.random.default_rng(0).normal(0.4, size=9)
    for side in ("greater", "less"):
        expected = stats.permutation_test(
            (effects - 0.25,),
            lambda values, axis: values.sum(axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=2**9,
            alternative=side,
        )
        assert expected.null_distribution.size == 2**9
        assert sign_flip(effects, 0.25, side) == expected.pvalue


def test_sign_flip_by_hand() -> None:
    assert sign_flip([1, 2, 3], 0, "greater") == 1 / 8
    assert sign_flip([1, 2, -3], 0, "greater") == 5 / 8  # sums 6, 4, 2, 0 and 0
    assert sign_flip([1, 2, 3], 0, "less") == 1
    assert sign_flip([0, 0, 0], 0, "greater") == 1
    # 0.1 + 0.2 - 0.3 is 0 but for rounding, so its sum ties with its opposite.
    assert sign_flip([0.1, 0.2, -0.3], 0, "greater") == 5 / 8


def test_an_infinite_effect_outweighs_all_finite_ones() -> None:
    assert sign_flip([INF] * 5, 0, "greater") == 2**-5
    assert sign_flip([INF, 1, 1, 1], 0, "greater") == 2**-4
    assert sign_flip([-INF, *[100.0] * 9], 0, "greater") > 0.5
    huge, infinite = ([size, 1.0, 2.0, -3.0] for size in (1e6, INF))
    assert sign_flip(huge, 0, "greater") == sign_flip(infinite, 0, "greater")


def test_many_effects_are_judged_by_drawn_signs_almost_as_by_all() -> None:
    effects = np.random.default_rng(3).normal(0.6, size=20)
    exact = sign_flip(effects, 0, "greater")
    # A 21st deviation of nothing changes no sum, but is one too many to enumerate.
    drawn = sign_flip([*effects, 0.0], 0, "greater")
    assert 0.001 < exact < 0.2
    # Five binomial deviations of 99,999 draws.
    assert drawn != exact
    assert abs(drawn - exact) < 5 * (exact * (1 - exact) / 99_999) ** 0.5
    assert sign_flip([1.0] * 40, 0, "greater") == 1 / 100_000


def test_within_and_beyond_are_the_one_sided_tests_at_the_ends() -> None:
    effects = [0.1, 0.2, 0.4, -0.3, 0.5]
    above, below = sign_flip(effects, -1, "greater"), sign_flip(effects, 0.5, "less")
    assert within(effects, -1, 0.5) == max(above, below)
    assert within(effects, -1, INF) == above
    assert within(effects, -INF, 0.5) == below
    under, over = sign_flip(effects, 0, "less"), sign_flip(effects, 0.1, "greater")
    assert beyond(effects, 0, INF) == under
    assert beyond(effects, 0, 0.1) == min(1, 2 * min(under, over))
    assert beyond([0.0] * 8, -1, 1) == 1


def test_holm_by_hand_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm([0.3]) == (0.3,)
    assert holm([0.6, 0.7]) == (1, 1)


# -- simulations of known answers ------------------------------------------------------


def rejections(p_value: Callable[[Floats], float], shape: str, n: int) -> float:
    """Return the share of p-values <= 0.05 where the hypothesis holds."""
    rng, draw = np.random.default_rng(7), SHAPES[shape]
    return float(np.mean([p_value(draw(rng, n)) <= 0.05 for _ in range(TRIALS)]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", [5, 10])
def test_sign_flip_rejects_a_true_hypothesis_in_5_percent_at_most(shape, n) -> None:
    share = rejections(lambda d: sign_flip(d + 2, 2, "greater"), shape, n)
    # All p are multiples of 2^-n: at n = 5 only 1/32 is below 0.05.
    assert 0.015 < share < UPPER


@pytest.mark.parametrize("shape", SHAPES)
def test_within_confirms_a_difference_of_the_margin_in_5_percent_at_most(shape) -> None:
    def equal(d: Floats) -> float:
        return within(d / 5 + 0.1, -0.1, 0.1)

    def different(d: Floats) -> float:
        return sign_flip(d / 5 + 0.1, 0, "greater")

    assert rejections(equal, shape, 8) < UPPER
    # To find no significant difference is no test of equality.
    assert 1 - rejections(different, shape, 8) > UPPER


@pytest.mark.parametrize("effect", [-0.1, 0.0, 0.1])
def test_beyond_refutes_a_true_prediction_in_5_percent_at_most(effect) -> None:
    share = rejections(lambda d: beyond(d / 20 + effect, -0.1, 0.1), "normal", 8)
    assert share < UPPER


def test_the_tests_find_what_is_there() -> None:
    """Effects of one and a half deviations, as strong ones of the experiments are."""
    larger = rejections(lambda d: sign_flip(d + 1.5, 0, "greater"), "normal", 10)
    equal = rejections(lambda d: within(d / 20, -0.1, 0.1), "normal", 10)
    assert min(larger, equal) > 0.9


def test_holm_rejects_any_true_hypothesis_of_five_in_5_percent_at_most() -> None:
    rng = np.random.default_rng(11)
    families = rng.normal(size=(TRIALS, 5, 8))
    p_values = [[sign_flip(d, 0, "greater") for d in five] for five in families]
    least = np.array([min(holm(five)) for five in p_values])
    assert (least <= 0.05).mean() < UPPER
    assert (np.array(p_values).min(axis=1) <= 0.05).mean() > 0.15  # without Holm
