"""The options of a measuring process, and its tests: one for each setup."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.bench.declare import Setup, read
from harness.runs.worker import introduce


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a measuring process."""
    group = parser.getgroup("lockstep benchmarks")
    group.addoption("--declared", type=Path, action="append", help="a benchmark's file")
    group.addoption("--backend", help="the backend that is measured")
    group.addoption("--device", default="cpu", help="the device that it works on")
    group.addoption("--scale", help="quick or std: how many rounds are timed")
    group.addoption("--process", type=int, help="this process; the seed of all orders")
    group.addoption("--setup", action="append", help="BENCHMARK/ID of what is measured")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Create a test for each setup, in the process' random order."""
    if not metafunc.config.getoption("--declared"):
        return
    setups = list(chosen_setups(metafunc.config))
    random.Random(metafunc.config.getoption("--process")).shuffle(setups)
    names = ["-".join([each.benchmark, *each.config.values()]) for each in setups]
    metafunc.parametrize("setup", setups, ids=names)


def chosen_setups(config: pytest.Config) -> Iterator[Setup]:
    """Yield the setups that this process measures."""
    option = config.getoption
    for benchmark in map(read, option("--declared")):
        setups = benchmark.setups(option("--backend"), option("--scale"))
        for setup in setups.values():
            if setup.key in option("--setup"):
                yield setup


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(
    config: pytest.Config, machine_info: dict[str, Any]
) -> None:
    """Say what records say of a machine: nothing that identifies it."""
    machine_info.clear()
    option = config.getoption
    machine_info.update(introduce(option("--backend"), option("--device")))
