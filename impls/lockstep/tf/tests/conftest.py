"""Fixtures: a driver in each mode of this process, and others for TensorFlow 1."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

tf = pytest.importorskip("tensorflow", reason="needs TensorFlow")

from harness.parity.drivers.tf import EagerDriver, make_driver  # noqa: E402
from harness.tests.script_process import Request  # noqa: E402
from harness.tests.shared_processes import Processes  # noqa: E402
from lockstep import tf as lockstep_tf  # noqa: E402
from lockstep.tf import strict as lockstep_strict  # noqa: E402

SOURCES = Path(lockstep_tf.__file__).parents[2]
PREAMBLE = """
import os, sys
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
"""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let strict names inside of functions wait for the soak.

    The default is tested inside of functions, and strict names inside of graphs.
    """
    given = item.callspec.params if hasattr(item, "callspec") else {}
    if (given.get("mode"), given.get("names")) == ("function", "strict"):
        item.add_marker(pytest.mark.soak)


@pytest.fixture(params=["eager", "function", "graph"])
def mode(request: pytest.FixtureRequest) -> str:
    """A mode that can share a process with the others."""
    return request.param


@pytest.fixture(params=["default", "strict"])
def names(request: pytest.FixtureRequest) -> object:
    """The names under test, default and strict."""
    return lockstep_tf if request.param == "default" else lockstep_strict


@pytest.fixture
def new_driver(mode: str) -> Iterator[Callable[..., EagerDriver]]:
    """Make drivers in one mode and close them after the test."""
    made: list[EagerDriver] = []

    def new(names: object = lockstep_tf) -> EagerDriver:
        while made:
            made.pop().close()
        made.append(make_driver(mode, names))
        return made[0]

    yield new
    while made:
        made.pop().close()


@pytest.fixture(scope="session")
def child() -> Callable[..., str]:
    """Run a script in a fresh interpreter and return what it printed."""

    def run(script: str, *arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-c", PREAMBLE + textwrap.dedent(script)]
            + [str(argument) for argument in arguments],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SOURCES), "CUDA_VISIBLE_DEVICES": ""},
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout.strip()

    return run


@pytest.fixture
def shared(processes: Processes, tmp_path: Path) -> Callable[..., str]:
    """Run a script in the process of its kind and return what it printed."""

    def run(kind: str, script: str, *arguments: object) -> str:
        path = tmp_path / "script.py"
        path.write_text(PREAMBLE + textwrap.dedent(script), "utf-8")
        texts = [str(argument) for argument in arguments]
        request = Request(str(path), texts, str(tmp_path), with_harness=True)
        return processes.output_of(kind, ["tensorflow"], request).strip()

    return run
