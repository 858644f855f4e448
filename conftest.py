"""What every run of the tests listens to, and the option for tests that take long."""

import pytest

pytest_plugins = ["harness.nets.sentences"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option with which tests run that take many minutes."""
    text = "run tests marked soak; one that was ended goes on with what is in FOLDER"
    parser.addoption("--soak", metavar="FOLDER", help=text)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of the soak in other runs."""
    if item.get_closest_marker("soak") and not item.config.getoption("--soak"):
        pytest.skip("takes many minutes; nox -s soak runs it")
