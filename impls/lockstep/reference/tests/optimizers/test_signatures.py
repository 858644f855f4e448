"""The signatures that ``help`` shows for the optimizers in NumPy."""

from __future__ import annotations

import inspect

import pytest

from lockstep import reference
from lockstep.messages.optimizers.parameters import OPTIMIZERS


@pytest.mark.parametrize("spec", OPTIMIZERS.values(), ids=lambda spec: spec.class_name)
def test_a_signature_has_tensorflows_arguments_and_strict(spec) -> None:
    shown = inspect.signature(getattr(reference, spec.class_name)).parameters
    assert list(shown) == [*spec.signature.parameters, "strict"]
    assert shown["strict"].default is False
    assert shown["strict"].kind is inspect.Parameter.KEYWORD_ONLY
