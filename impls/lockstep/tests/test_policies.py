"""The policies as a whole: the same names, laws and sentences on every backend."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lockstep import registry
from lockstep.errors import OutOfRangeError, UnknownNameError
from lockstep.policies import POLICIES, bind

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
def is_strict(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def policies(backend: str, is_strict: bool) -> Any:
    return policies_of(backend, is_strict)


def policies_of(backend: str, strict: bool) -> Any:
    module = registry.load(backend).lr_policies
    policies = {
        name: functools.partial(getattr(module, name), strict=strict)
        for name in POLICIES
    }
    return SimpleNamespace(**policies)


def values(rates: Any) -> list[float]:
    return [float(rate) for rate in rates]


def test_every_policy_has_arguments_here() -> None:
    assert set(ARGUMENTS) == set(POLICIES)


@pytest.mark.parametrize("name", POLICIES)
def test_signatures_are_the_same_on_every_backend(backend: str, name: str) -> None:
    policy = getattr(registry.load(backend).lr_policies, name)
    ours, shared = (
        {key: p.default for key, p in inspect.signature(of).parameters.items()}
        for of in (policy, POLICIES[name])
    )
    assert list(ours) == list(shared)
    assert all(ours[key] == shared[key] for key in ours if key != "dtype")


@pytest.mark.parametrize("backend", ["reference", "tf"])
def test_strict_is_a_module_to_import_from(backend: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{registry.find(backend).framework} is not installed")
    strict = registry.load(backend, strict=True).lr_policies
    assert sys.modules[strict.__name__] is strict
    assert set(strict.__all__) == set(POLICIES)
    assert "strict" not in inspect.signature(strict.poly_decay).parameters
    given = {"decay_steps": 4, "min_lr": 0.5}
    assert float(strict.cosine_decay(4, 0.5, **given)) == 0.25


@pytest.mark.parametrize("other", ["keras3", "pytorch", "tf"])
@pytest.mark.parametrize("name", POLICIES)
def test_every_backend_gives_the_rates_of_the_reference(
    other: str, is_strict: bool, name: str
) -> None:
    if not registry.installed(other):
        pytest.skip(f"{registry.find(other).framework} is not installed")
    policies = policies_of(other, is_strict)
    reference = policies_of("reference", is_strict)
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
    policy = getattr(policies_of(backend, strict=True), name)
    with pytest.raises(TypeError):
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
    ("name", "change"),
    [
        ("fixed_lr", {"learning_rate": math.nan}),
        ("fixed_lr", {"global_step": -1}),
        ("fixed_lr", {"global_step": 1.5}),
        ("fixed_lr", {"global_step": None}),
        ("poly_decay", {"learning_rate": -0.1}),
        ("poly_decay", {"learning_rate": "fast"}),
        ("poly_decay", {"decay_steps": 0}),
        ("poly_decay", {"warmup_steps": -1}),
        ("poly_decay", {"power": math.inf}),
        ("exp_decay", {"decay_rate": 0.0}),
        ("exp_decay", {"begin_decay_at": 1.5}),
        ("exp_decay", {"use_staircase_decay": "no"}),
        ("cosine_decay", {"power": 2.0}),
        ("inv_poly_decay", {"min_lr": math.nan}),
        ("inv_poly_decay", {"learning_rate": 0.0}),
        ("transformer_policy", {"d_model": 0}),
        ("transformer_policy", {"dtype": "int32"}),
        ("piecewise_constant", {"decay_rates": [0.5]}),
        ("piecewise_constant", {"boundaries": [1, 2.5]}),
        ("piecewise_constant", {"decay_rates": [0.5, -1]}),
        ("piecewise_constant", {"decay_rates": iter([0.5, 0.3])}),
        ("piecewise_constant", {"boundaries": [9, 3], "global_step": 5}),
    ],
)
def test_bad_arguments_are_refused(
    backend: str, name: str, change: dict[str, Any]
) -> None:
    given = {"global_step": 0, "learning_rate": 0.1, **ARGUMENTS[name], **change}
    with pytest.raises(OutOfRangeError):
        getattr(registry.load(backend).lr_policies, name)(**given)


def test_one_rate_has_one_name() -> None:
    policy = POLICIES["poly_decay"]
    assert policy(3, lr=0.5, decay_steps=10) == policy(3, 0.5, 10)
    with pytest.raises(TypeError):
        policy(3, 0.5, 10, lr=0.5)
    with pytest.raises(TypeError):
        policy(3, learning_rate=0.5, lr=0.5, decay_steps=10)


def test_no_boundaries_are_an_index_error(policies: Any) -> None:
    with pytest.raises(IndexError):
        policies.piecewise_constant(0, 0.1, [], [])


def test_strict_checks_the_power_and_the_step_alone(backend: str) -> None:
    policies = policies_of(backend, strict=True)
    assert float(policies.poly_decay(-4, -1.0, 4)) == -1.0
    with pytest.raises(OutOfRangeError):
        policies.inv_poly_decay(0, 0.1, 10, 0.01, power=0.0)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="'poly_decay'"):
        bind("pol_decay", {})
    with pytest.raises(UnknownNameError, match="'decay_steps'"):
        bind("poly_decay", {"learning_rate": 0.1, "decay_step": 4})
    with pytest.raises(OutOfRangeError, match="decay_steps"):
        bind("poly_decay", {"learning_rate": 0.1})
