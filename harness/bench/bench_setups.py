"""Time the variants of each setup in turns; each is an entry of pytest-benchmark.

The variants of a setup take turns within rounds, which pytest-benchmark cannot do. So
the rounds run first. The test of a variant then replays their times to pytest-benchmark
as a clock, so its statistics, comparisons and histograms are those of the rounds.
"""

from __future__ import annotations

import gc
import importlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pytest

from harness.bench.declare import Setup
from harness.records.machine import start_of_run
from harness.runs.worker import introduce
from harness.timing import Rounds, Steps, build_steps
from lockstep import registry

BUILDS = {"pytorch": 3}
"""How often a process builds the variants.

A graph takes seconds to build, so it is built only once. The difference in cost between
two builds is then part of the difference between processes, and so of the interval.
"""


class Playback:
    """A clock that reads 0 when a round starts and its measured time when it ends."""

    __name__ = "interleaved rounds"

    def __init__(self) -> None:
        self.readings: Iterator[float] = iter(())

    def play(self, seconds: Sequence[float]) -> None:
        """Set the durations of the next rounds."""
        self.readings = chain.from_iterable((0.0, time) for time in seconds)

    def __call__(self) -> float:
        """Return the next reading."""
        return next(self.readings)


class Measurements:
    """The times of the setups that were measured in this process.

    Args:
        backend: the backend that is measured.
        device: the device that it runs on.
        scale: selects the setups' number of rounds.
        process: number of this process; the seed of all random orders.
    """

    def __init__(self, backend: str, device: str, scale: str, process: int) -> None:
        self.backend, self.device = backend, device
        self.scale, self.process = scale, process
        self.times: dict[str, Mapping[str, list[float]] | Exception] = {}
        self.setups: dict[str, dict[str, Any]] = {}

    def seconds(self, setup: Setup) -> Mapping[str, list[float]]:
        """Return the times of each variant. A setup that failed raises again."""
        key = setup.key
        if key not in self.times:
            origin, begin, reason = start_of_run(), time.monotonic(), ""
            try:
                self.times[key] = self.measure(setup)
            except Exception as error:
                self.times[key] = error
                reason = f"{type(error).__name__}: {error}".splitlines()[0]
            duration = round(time.monotonic() - begin, 3)
            self.setups[key] = {**origin, "duration": duration, "reason": reason}
        times = self.times[key]
        if isinstance(times, Exception):
            raise times
        return times

    def origins(self) -> dict[str, Any]:
        """Return the subject, the environment and the origin of each setup."""
        return {**introduce(self.backend, self.device), "setups": self.setups}

    def measure(self, setup: Setup) -> dict[str, list[float]]:
        """Build the variants of a setup and time them in turns."""
        gc.collect()
        name = f"harness.tasks.overhead.{registry.find(self.backend).model_file}"
        benchmark = getattr(importlib.import_module(name), setup.task)

        def build(seed: int) -> Steps:
            makers = benchmark(seed, device=self.device, **setup.config)
            return build_steps(makers, setup.variants, seed)

        count = setup.rounds[self.scale]
        builds = BUILDS.get(self.backend, 1) if self.scale == "std" else 1
        rounds = Rounds(build, between_builds=-(-count // builds), seed=self.process)
        for _ in range(count):
            rounds()
        return rounds.seconds


def test_variant(
    benchmark: Any,
    request: pytest.FixtureRequest,
    measurements: Measurements,
    setup: Setup,
    variant: str,
) -> None:
    """Replay the times of a variant to pytest-benchmark."""
    seconds = measurements.seconds(setup)[variant]
    marker = request.node.get_closest_marker("benchmark")
    marker.kwargs["timer"].play(seconds)
    benchmark.pedantic(lambda: None, rounds=len(seconds))
    benchmark.extra_info.update(setup=setup.key, variant=variant, **setup.config)
