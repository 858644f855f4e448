"""Strict names take the originals' arguments on every backend, and no others."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
from inspect import Parameter
from types import ModuleType
from typing import Any

import pytest

from lockstep import pipeline, registry
from lockstep.checks import dtype_name
from lockstep.interface import EXPORTS
from lockstep.tests.original_signatures import (
    BEFORE,
    BESIDE,
    OURS,
    SIGNATURES,
)


@pytest.fixture(params=[n for n, b in registry.BACKENDS.items() if b.has_strict])
def backend(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if not registry.installed(name):
        pytest.skip(f"{registry.find(name).framework} is not installed")
    return name


def named(module: ModuleType, name: str) -> Any:
    """Return what a module or its ``lr_policies`` has under a name."""
    for part in name.split("."):
        module = getattr(module, part)
    return module


def parameters_of(function: Any) -> list[Parameter]:
    return list(inspect.signature(function).parameters.values())


def original(name: str) -> list[Parameter]:
    """Return the parameters of the original."""
    namespace: dict[str, Any] = {}
    exec(f"def function({SIGNATURES[name]}): ...", namespace)
    return parameters_of(namespace["function"])


def shown(parameter: Parameter) -> tuple[str, Any]:
    """Return the name and the default; a dtype by its name."""
    is_dtype = parameter.name == "dtype"
    default = parameter.default
    return parameter.name, dtype_name(default) if is_dtype else default


def test_the_table_has_every_name_but_wrappers_of_ours() -> None:
    listed = {name.partition(".")[0] for name in SIGNATURES} | OURS
    assert listed | set(pipeline.WRAPPERS) == set(EXPORTS)


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_strict_name_has_the_arguments_of_the_original(
    backend: str, name: str
) -> None:
    found = parameters_of(named(registry.load(backend, strict=True), name))
    before = BEFORE.get(f"{backend}.{name}", ())
    beside = BESIDE.get(f"{backend}.{name}", BESIDE.get(name, ()))
    first, rest = found[: len(before)], found[len(before) :]
    expected = original(name)
    assert [p.name for p in first] == list(before)
    assert [shown(p) for p in rest[: len(expected)]] == [*map(shown, expected)]
    by_position = {p.kind for p in found[: len(before) + len(expected)]}
    assert by_position == {Parameter.POSITIONAL_OR_KEYWORD}
    assert [p.name for p in rest[len(expected) :]] == list(beside)


@pytest.mark.parametrize("backend", ["reference", "tf", "pytorch"], indirect=True)
@pytest.mark.parametrize("name", SIGNATURES)
def test_a_default_name_begins_with_the_arguments_of_the_original(
    backend: str, name: str
) -> None:
    found = parameters_of(named(registry.load(backend), name))
    names = [*BEFORE.get(f"{backend}.{name}", ()), *(p.name for p in original(name))]
    assert [p.name for p in found[: len(names)]] == names
    assert {p.kind for p in found[: len(names)]} == {Parameter.POSITIONAL_OR_KEYWORD}


BOUND = sorted(set(SIGNATURES) - {"get_regularization_loss", "reduce_gradients"})


@pytest.mark.parametrize("name", BOUND)
def test_an_argument_of_ours_is_refused(backend: str, name: str) -> None:
    function = named(registry.load(backend, strict=True), name)
    default = named(registry.load(backend), name)
    if function is default:
        pytest.skip("nothing differs between strict and default")
    with pytest.raises(TypeError):
        function(strict=False)


def test_names_of_optimizers_stand_for_strict_classes(backend: str) -> None:
    strict = registry.load(backend, strict=True)
    for name, made in strict.OPTIMIZER_CLS_NAMES.items():
        assert made is getattr(strict, made.__name__, made), name


def test_too_many_arguments_by_position_are_counted(backend: str) -> None:
    strict = registry.load(backend, strict=True)
    with pytest.raises(TypeError):
        strict.MultitaskOptimizerWrapper(None, False)
    with pytest.raises(TypeError):
        strict.clip_gradients_by_norm([], 1.0, False)


def test_an_argument_left_out_is_named(backend: str) -> None:
    strict = registry.load(backend, strict=True)
    with pytest.raises(TypeError, match="loss_scale_value"):
        strict.FixedLossScale()


def test_strict_objects_copy_and_travel(backend: str) -> None:
    strict, default = registry.load(backend, strict=True), registry.load(backend)
    scale = strict.FixedLossScale(4)
    assert isinstance(scale, default.FixedLossScale)
    assert type(copy.deepcopy(scale)) is strict.FixedLossScale
    assert repr(scale) == "FixedLossScale(4.0)"
    for function in (strict.clip_by_global_norm, strict.optimize_loss):
        assert pickle.loads(pickle.dumps(function)) is function


def test_a_subclass_of_a_strict_class_is_strict(backend: str) -> None:
    strict, default = registry.load(backend, strict=True), registry.load(backend)
    unchecked = {"scale_min": 0.0, "scale_max": 8.0}

    class Own(strict.AutomaticLossScaler):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__("Backoff", unchecked)

    assert float(Own().loss_scale) == 8.0
    with pytest.raises(ValueError, match="scale_min"):
        default.AutomaticLossScaler("Backoff", unchecked)


WRAPPERS = [name for name in SIGNATURES if name.endswith(("Wrapper", "Optimizer"))]
WRAPPERS = [name for name in WRAPPERS if "learning_rate" not in SIGNATURES[name]]
METHODS = ["apply_gradients", "compute_gradients", "get_slot", "minimize"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_method_has_the_arguments_of_the_original(name: str, method: str) -> None:
    if not registry.installed("tf"):
        pytest.skip("tensorflow is not installed")
    optimizer = importlib.import_module("tensorflow").compat.v1.train.Optimizer
    expected = parameters_of(getattr(optimizer, method))
    expected = [p for p in expected if p.name != "skip_gradients_aggregation"]  # TF 2
    found = parameters_of(getattr(getattr(registry.load("tf"), name), method))
    assert [*map(shown, found)] == [*map(shown, expected)]
