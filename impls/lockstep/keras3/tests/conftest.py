"""Keras on TensorFlow, chosen before anything is imported, and others to share."""

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import pytest

pytest.importorskip("keras", reason="needs Keras")
pytest.importorskip("tensorflow", reason="needs TensorFlow")

from harness.tests.script_process import Request
from harness.tests.shared_processes import UNCHANGED, Processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests apply gradients of losses that were not scaled."""
    for item in items:
        if "keras3" in item.path.parts:
            ignore = "ignore:.*was never asked for:UserWarning"
            item.add_marker(pytest.mark.filterwarnings(ignore), append=False)


@pytest.fixture
def elsewhere(processes: Processes, tmp_path: Path) -> Callable[..., list[str]]:
    """Run a script in another process and return the lines that it prints.

    Scripts of one kind share a process. It knows nothing of this one's objects.
    """

    def run(script: str, *arguments: object, kind: str = UNCHANGED[0]) -> list[str]:
        path = tmp_path / "script.py"
        path.write_text(textwrap.dedent(script), "utf-8")
        texts = [str(argument) for argument in arguments]
        request = Request(str(path), texts, str(tmp_path))
        frameworks = ["tensorflow", "keras"]
        return processes.output_of(kind, frameworks, request).splitlines()

    return run
