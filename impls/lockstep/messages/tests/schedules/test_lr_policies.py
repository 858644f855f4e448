"""The policies as a whole: the same names, laws and sentences on every backend."""

from __future__ import annotations

import importlib
import inspect
import math
from typing import Any

import numpy as np
import pytest

from harness.parity import drivers
from lockstep import registry
from lockstep.errors import UnknownNameError
from lockstep.messages.schedules.lr_policies import POLICIES, find

ARGUMENTS: dict[str, dict[str, Any]] = {
    "fixed_lr": {},
    "piecewise_constant": {"boundaries": [3, 9], "decay_rates": [0.5, 0.3]},
    "exp_decay": {"decay_steps": 4, "decay_rate": 0.7, "use_staircase_decay": False},
    "poly_decay": {"decay_steps": 11, "power": 1.7, "min_lr": 0.02, "warmup_steps": 5},
    "cosine_decay": {"decay_steps": 11, "begin_decay_at": 3, "min_lr": 0.02},
    "inv_poly_decay": {"decay_steps": 11, "min_lr": 0.02, "warmup_steps": 3},
    "transformer_policy": {"d_model": 16, "warmup_steps": 6, "max_lr": 0.02},
}
STEPS = 20


@pytest.fixture(params=sorted(registry.BACKENDS))
def backend(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if not registry.installed(name):
        pytest.skip(f"{registry.find(name).framework} is not installed")
    return name


@pytest.fixture(params=[False, True], ids=["default", "strict"])
def policies(backend: str, request: pytest.FixtureRequest) -> Any:
    return registry.load(backend, strict=request.param).lr_policies


def values(rates: Any) -> list[float]:
    return [float(rate) for rate in rates]


def test_every_policy_has_arguments_here() -> None:
    assert set(ARGUMENTS) == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_signatures_are_the_table_on_every_backend(backend: str, name: str) -> None:
    policy = getattr(registry.load(backend).lr_policies, name)
    step, *parameters, strict = inspect.signature(policy).parameters.values()
    assert step.name == "global_step"
    assert (strict.name, strict.default) == ("strict", False)
    spec = POLICIES[name].parameters
    assert [p.name for p in parameters] == [p.name for p in spec]
    for ours, theirs in zip(parameters, spec, strict=True):
        required = ours.default is inspect.Parameter.empty
        if ours.name != "dtype":
            assert required or ours.default == theirs.default


def test_strict_is_a_module_to_import_from(backend: str) -> None:
    strict = importlib.import_module(f"lockstep.{backend}.strict").lr_policies
    assert inspect.ismodule(strict)
    assert strict.poly_decay.__module__ == strict.__name__
    assert set(strict.__all__) == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_every_backend_gives_the_rates_of_the_reference(
    policies: Any, name: str
) -> None:
    is_strict = "strict" in policies.__name__
    reference = registry.load("reference", strict=is_strict).lr_policies
    args = ARGUMENTS[name]
    expected = [getattr(reference, name)(s, 0.1, **args) for s in range(STEPS)]
    rates = [getattr(policies, name)(s, 0.1, **args) for s in range(STEPS)]
    assert values(rates) == values(expected)


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "fixed_lr"])
def test_an_array_of_steps_gives_the_rates_of_each(name: str) -> None:
    policy = getattr(registry.load("reference").lr_policies, name)
    args = ARGUMENTS[name]
    rates = policy(np.arange(STEPS), 0.1, **args)
    assert rates.dtype == np.float32
    assert rates.tolist() == [float(policy(s, 0.1, **args)) for s in range(STEPS)]


@pytest.mark.parametrize("name", POLICIES)
def test_an_integer_rate_is_a_rate(backend: str, name: str) -> None:
    policy, args = getattr(registry.load(backend).lr_policies, name), ARGUMENTS[name]
    assert float(policy(4, 1, **args)) == float(policy(4, 1.0, **args))


@pytest.mark.parametrize("name", ["exp_decay", "poly_decay", "inv_poly_decay"])
def test_strict_refuses_an_integer_rate_as_the_original_did(
    backend: str, name: str
) -> None:
    policy = getattr(registry.load(backend, strict=True).lr_policies, name)
    with pytest.raises(TypeError, match="expected a float, as the original, got 1"):
        policy(4, 1, **ARGUMENTS[name])


def test_transformer_in_half_precision_has_a_ceiling(backend: str) -> None:
    policy = registry.load(backend).lr_policies.transformer_policy
    args = {"d_model": 16, "warmup_steps": 10, "max_lr": 0.05, "dtype": "float16"}
    assert float(policy(9, 2.0, **args)) == float(np.float16(0.05))
    assert float(policy(0, 2.0, **args)) < 0.05


def test_cosine_ends_at_its_floor(backend: str) -> None:
    policy = registry.load(backend).lr_policies.cosine_decay
    rates = [float(policy(s, 0.5, 10, min_lr=0.125)) for s in (0, 5, 10, 99)]
    assert rates == [0.5, 0.3125, 0.125, 0.125]


def test_inverse_decay_honours_its_arguments(backend: str) -> None:
    policy = registry.load(backend).lr_policies.inv_poly_decay
    args = {"decay_steps": 8, "min_lr": 0.25, "begin_decay_at": 4, "warmup_steps": 2}
    rates = [float(policy(s, 1.0, **args)) for s in (0, 1, 2, 4, 12, 13, 10**6)]
    assert rates == [0.0, 0.5, 1.0, 1.0, 0.25, 0.25, 0.25]


def test_inverse_decay_takes_its_growth_in_float64(policies: Any) -> None:
    one, rate, least = np.float32([1, 0.2, 0.003])
    growth = np.float32((0.2 / 0.003 - 1) / 11)
    assert growth != (rate / least - one) / np.float32(11)
    expected = rate / (one + growth * np.arange(11, dtype=np.float32))
    rates = [policies.inv_poly_decay(step, 0.2, 11, 0.003) for step in range(11)]
    assert values(rates) == values(expected)


def test_poly_decays_during_the_warm_up_as_ever(policies: Any) -> None:
    rates = [float(policies.poly_decay(s, 1.0, 8, warmup_steps=4)) for s in range(6)]
    assert rates == [0.0, 0.21875, 0.375, 0.46875, 0.5, 0.375]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("fixed_lr", {"learning_rate": math.nan}, "a finite rate >= 0, got nan"),
        ("poly_decay", {"learning_rate": -0.1}, "a finite rate >= 0, got -0.1"),
        ("poly_decay", {"learning_rate": "fast"}, "a finite rate >= 0, got 'fast'"),
        ("poly_decay", {"decay_steps": 0}, "a number of steps > 0, got 0"),
        ("poly_decay", {"warmup_steps": -1}, "a number of steps >= 0, got -1"),
        ("poly_decay", {"power": math.inf}, "a finite exponent > 0, got inf"),
        ("exp_decay", {"decay_rate": 0.0}, "a factor > 0, got 0.0"),
        ("exp_decay", {"begin_decay_at": 1.5}, "an integer >= 0), got 1.5"),
        ("exp_decay", {"use_staircase_decay": "no"}, "a bool, got 'no'"),
        (
            "cosine_decay",
            {"power": 2.0},
            "expected 1, got 2.0; leave it out, for a cosine",
        ),
        ("inv_poly_decay", {"min_lr": math.nan}, "a finite rate >= 0, got nan"),
        ("inv_poly_decay", {"learning_rate": 0.0}, "a rate > 0, got 0.0"),
        ("transformer_policy", {"d_model": 0}, "a width > 0, got 0"),
        ("transformer_policy", {"dtype": "int32"}, "got 'int32'"),
        ("piecewise_constant", {"decay_rates": [0.5]}, "each of the 1 decay_rates"),
        ("piecewise_constant", {"boundaries": [1, 2.5]}, r"integers, got \[1, 2.5\]"),
        ("piecewise_constant", {"decay_rates": [0.5, -1]}, "a list of factors >= 0"),
        ("piecewise_constant", {"decay_rates": iter([0.5, 0.3])}, "a list of factors"),
        ("piecewise_constant", {"boundaries": [9, 3], "global_step": 5}, "sort them"),
        ("fixed_lr", {"global_step": -1}, "an integer >= 0 or a tensor.*got -1"),
        ("fixed_lr", {"global_step": 1.5}, "an integer >= 0 or a tensor.*got 1.5"),
        ("fixed_lr", {"global_step": None}, "an integer >= 0 or a tensor.*got None"),
    ],
)
def test_bad_input_is_one_sentence(
    backend: str, name: str, change: dict[str, Any], words: str
) -> None:
    given = {"global_step": 0, "learning_rate": 0.1, **ARGUMENTS[name], **change}
    driver = drivers.load(backend)
    errors = (ValueError, *driver.expects("InvalidArgumentError"))
    with pytest.raises(errors, match=words.replace(")", r"\)")):
        getattr(registry.load(backend).lr_policies, name)(**given)


def test_no_boundaries_are_an_index_error(policies: Any) -> None:
    with pytest.raises(IndexError, match="use fixed_lr for a rate that never changes"):
        policies.piecewise_constant(0, 0.1, [], [])


def test_strict_checks_the_power_and_the_step_alone(backend: str) -> None:
    policies = registry.load(backend, strict=True).lr_policies
    assert float(policies.poly_decay(-4, -1.0, 4)) == -1.0
    with pytest.raises(ValueError, match="power: expected a finite exponent > 0"):
        policies.inv_poly_decay(0, 0.1, 10, 0.01, power=0.0)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'poly_decay'"):
        find("pol_decay")
    with pytest.raises(UnknownNameError, match="did you mean 'decay_steps'"):
        find("poly_decay").bind({"learning_rate": 0.1, "decay_step": 4})
    with pytest.raises(ValueError, match=r"decay_steps: expected .* got nothing"):
        find("poly_decay").bind({"learning_rate": 0.1})
