"""The options with which ``harness bench`` starts pytest."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bench.declare import read


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what a measuring process needs to know."""
    group = parser.getgroup("lockstep benchmarks")
    group.addoption("--declared", type=Path, help="the file of the benchmark")
    group.addoption("--backend", help="the backend that is measured")
    group.addoption("--device", default="cpu", help="the device that it works on")
    group.addoption("--rounds", type=int, help="how often each variant is timed")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a benchmark once for each setup of the backend."""
    if "setup_id" in metafunc.fixturenames:
        option = metafunc.config.getoption
        setups = read(option("--declared")).setups(option("--backend"))
        names = ["-".join(setup.values()) for setup in setups.values()]
        metafunc.parametrize(("setup_id", "setup"), setups.items(), ids=names)
