"""One test of pytest-benchmark for each setup: it times rounds of all variants.

A round runs each variant once, in a new random order, so a slow moment of the machine
affects all alike. The time of each variant is in the ``extra_info`` of the entry.
"""

from __future__ import annotations

import gc
import importlib
import json
import time
from typing import Any

import pytest

from harness.bench.declare import Setup
from harness.bench.process import FAILED
from harness.records.machine import start_of_run
from harness.timing import Rounds, Steps, build_steps
from lockstep import registry

BUILDS = {"pytorch": 3}
"""How often a process builds the variants.

A graph takes seconds to build, so it is built only once. The difference in cost between
two builds is then part of the difference between processes, and so of the interval.
"""


def test_setup(benchmark: Any, pytestconfig: pytest.Config, setup: Setup) -> None:
    """Time the variants of a setup; print the reason if it fails."""
    origin, begin = start_of_run(), time.monotonic()
    try:
        rounds = rounds_of(setup, pytestconfig)
        count = setup.rounds[pytestconfig.getoption("--scale")]
        benchmark.pedantic(rounds, setup=rounds.renew_if_due, rounds=count)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        print(f"\n{FAILED}{json.dumps([setup.key, reason])}")
        raise
    duration = round(time.monotonic() - begin, 3)
    benchmark.extra_info.update(
        setup=setup.key,
        task=setup.task,
        config=setup.config,
        seconds={n: list(map(rounded, s)) for n, s in rounds.seconds.items()},
        duration=duration,
        **origin,
    )


def rounded(seconds: float) -> float:
    """Return a time with 4 significant digits. More digits would be noise."""
    return float(f"{seconds:.3e}")


def rounds_of(setup: Setup, config: pytest.Config) -> Rounds:
    """Return the rounds of a setup, not built yet."""
    backend, device = config.getoption("--backend"), config.getoption("--device")
    scale, process = config.getoption("--scale"), config.getoption("--process")
    gc.collect()
    name = f"harness.tasks.overhead.{registry.find(backend).model_file}"
    task = getattr(importlib.import_module(name), setup.task)

    def build(seed: int) -> Steps:
        makers = task(seed, device=device, **setup.config)
        return build_steps(makers, setup.variants, seed)

    builds = BUILDS.get(backend, 1) if scale == "std" else 1
    return Rounds(build, between_builds=-(-setup.rounds[scale] // builds), seed=process)
