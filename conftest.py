"""What every run of the tests listens to, and an option of tests that take long."""

from pathlib import Path

import pytest

pytest_plugins = ["harness.nets.sentences"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the folder by which a long test goes on after it was ended."""
    text = "where tests marked soak keep what they have done; default: build/soak"
    folder = Path(__file__).parent / "build" / "soak"
    parser.addoption("--soak", metavar="FOLDER", default=folder, help=text)
