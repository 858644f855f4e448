"""The constructors that the package exports."""

from __future__ import annotations

import inspect

import pytest

from lockstep import pytorch
from lockstep.optimizers import RULES


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
