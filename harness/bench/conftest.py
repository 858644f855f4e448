"""The options of a measuring process, and its tests: one for each variant."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from harness.bench.bench_setups import Measurements, Playback
from harness.bench.declare import Setup, read

MEASUREMENTS = pytest.StashKey[Measurements]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of a measuring process."""
    group = parser.getgroup("lockstep benchmarks")
    group.addoption("--declared", type=Path, action="append", help="a benchmark's file")
    group.addoption("--backend", help="the backend that is measured")
    group.addoption("--device", default="cpu", help="the device that it works on")
    group.addoption("--scale", help="quick or std: how often each variant is timed")
    group.addoption("--process", type=int, help="the number of this process")
    group.addoption("--origins", type=Path, help="where to write what records need")
    group.addoption("--setup", action="append", help="BENCHMARK/ID of what is measured")


def pytest_configure(config: pytest.Config) -> None:
    """Create the measurements that all tests and the final file share."""
    option = config.getoption
    names = ("--backend", "--device", "--scale", "--process")
    config.stash[MEASUREMENTS] = Measurements(*map(option, names))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Create a test for each variant of each setup, in the process' random order."""
    if "variant" not in metafunc.fixturenames:
        return
    setups = list(chosen_setups(metafunc.config))
    random.Random(metafunc.config.getoption("--process")).shuffle(setups)
    cases = []
    for setup in setups:
        group = "-".join([setup.benchmark, *setup.config.values()])
        for variant in setup.variants:
            marks = pytest.mark.benchmark(group=group, timer=Playback())
            name = f"{group}-{variant}"
            cases.append(pytest.param(setup.key, variant, id=name, marks=marks))
    metafunc.parametrize(("setup", "variant"), cases, indirect=["setup"])


def chosen_setups(config: pytest.Config) -> Iterator[Setup]:
    """Yield the setups that this process measures."""
    option = config.getoption
    for benchmark in map(read, option("--declared")):
        for setup in benchmark.setups(option("--backend")).values():
            if setup.key in option("--setup"):
                yield setup


@pytest.fixture
def setup(request: pytest.FixtureRequest, setups: Mapping[str, Setup]) -> Setup:
    """Return the setup that the test's variant belongs to."""
    return setups[request.param]


@pytest.fixture(scope="session")
def setups(pytestconfig: pytest.Config) -> dict[str, Setup]:
    """Return the setups by their keys."""
    return {setup.key: setup for setup in chosen_setups(pytestconfig)}


@pytest.fixture(scope="session")
def measurements(pytestconfig: pytest.Config) -> Measurements:
    """Return the times of all setups. Each setup is measured at its first use."""
    return pytestconfig.stash[MEASUREMENTS]


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the origins that records need, if this is a measuring process."""
    if path := session.config.getoption("--origins"):
        origins = session.config.stash[MEASUREMENTS].origins()
        path.write_text(json.dumps(origins), "utf-8")
