"""What every run of the tests listens to."""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

pytest_plugins = ["harness.selection", "harness.tests.shared_processes"]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Do not search what is imported for garbage, neither now nor in the tests.

    The modules of the frameworks hold a million objects. Each search takes half a
    second, and the imports alone caused so many that they took twice as long.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
