"""What the package exports, and that its text is parallel to the reference's."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from lockstep import pytorch
from lockstep.interface import Wrapper
from lockstep.optimizers import RULES

PYTORCH = Path(pytorch.__file__).parent
REFERENCE = PYTORCH.parent / "reference"
WRAPPERS = [
    "AGNOptimizer",
    "MixedPrecisionLossScaleOptimizer",
    "MixedPrecisionOptimizerWrapper",
    "MultitaskOptimizerWrapper",
    "VariableClippingOptimizer",
]
METHODS = [name for name in vars(Wrapper) if not name.startswith("_")]


@pytest.mark.parametrize("spec", RULES.values(), ids=RULES)
def test_a_constructor_takes_the_arguments_of_tf_in_their_order(spec):
    signature = inspect.signature(getattr(pytorch, spec.class_name))
    found = list(signature.parameters.values())
    assert found[0].name == "params"
    expected = spec.signature.parameters.values()
    for parameter, argument in zip(expected, found[1:], strict=False):
        assert argument.name == parameter.name
        if argument.default is not inspect.Parameter.empty and argument.name != "name":
            assert argument.default == parameter.default


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", METHODS)
def test_methods_take_the_arguments_of_every_wrapper(name, wrapper):
    expected = inspect.signature(getattr(Wrapper, name)).parameters
    found = inspect.signature(getattr(getattr(pytorch, wrapper), name)).parameters
    assert [(p.name, p.default) for p in found.values()] == [
        (p.name, p.default) for p in expected.values()
    ]
