"""The signatures that ``help`` shows for the optimizers in NumPy."""

from __future__ import annotations

import inspect

import pytest

from lockstep import reference
from lockstep.messages.optimizers.parameters import OPTIMIZERS
from lockstep.reference.optimizers.classes import shown


@pytest.mark.parametrize("spec", OPTIMIZERS.values(), ids=lambda spec: spec.class_name)
def test_a_signature_has_tensorflows_arguments_and_strict(spec) -> None:
    signature = shown(spec)
    assert signature == inspect.signature(getattr(reference, spec.class_name))
    assert list(signature.parameters) == [*spec.signature.parameters, "strict"]
    strict = signature.parameters["strict"]
    assert (strict.default, strict.kind) == (False, inspect.Parameter.KEYWORD_ONLY)
