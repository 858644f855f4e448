"""Names of modules of release 0.2 lead to what they have become."""

from __future__ import annotations

import importlib
import pickle
import sys

import pytest

from lockstep import registry
from lockstep.messages import errors
from lockstep.moved import MOVED, PUBLIC


def backend_of(module: str) -> str:
    return module.split(".")[1]


@pytest.mark.parametrize("old", sorted({**MOVED, **PUBLIC}))
def test_an_old_name_is_the_module_that_it_has_become(old: str) -> None:
    name = backend_of(old)
    if name in registry.BACKENDS and not registry.installed(name):
        pytest.skip(f"{registry.find(name).framework} is not installed")
    sys.modules.pop(old, None)
    new = {**MOVED, **PUBLIC}[old]
    if old in PUBLIC:
        assert importlib.import_module(old) is importlib.import_module(new)
        return
    with pytest.warns(DeprecationWarning, match=f"is now {new}"):
        assert importlib.import_module(old) is importlib.import_module(new)


def test_a_pickle_with_an_old_name_loads() -> None:
    sys.modules.pop("lockstep.spec.errors", None)
    text = pickle.dumps(errors.OutOfRangeError).decode("latin-1")
    new, old = "lockstep.messages.errors", "lockstep.spec.errors"
    assert new in text
    # The length of a name stands before it in newer protocols.
    plain = pickle.dumps(errors.OutOfRangeError, protocol=0).replace(
        new.encode(), old.encode()
    )
    with pytest.warns(DeprecationWarning):
        assert pickle.loads(plain) is errors.OutOfRangeError
