"""What a measuring process runs: one test of pytest-benchmark for each setup of a job.

A test times rounds. A round runs each variant once, in a new random order, so a slow
moment of the machine affects all alike. After each test the file of its benchmark is
written anew: an interruption loses only the setup that was being measured.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
from collections import defaultdict
from typing import Any

import pytest

from harness.bench.declare import Setup
from harness.bench.measure import ENDED, ROUNDS, Job
from harness.processes.environment import start_of_run
from harness.records.code import code_digest
from harness.runs.worker import introduce
from harness.timing import Rounds, Steps, build_steps
from lockstep import registry

BUILDS = {"pytorch": 3}
"""How often a process builds the variants at scale std.

A graph takes seconds to build, so it is built only once. The difference in cost between
two builds is then part of the difference between processes, and so of the interval.
"""

JOB = Job.model_validate_json(sys.stdin.read())

TIMED: dict[str, list[Any]] = defaultdict(list)
"""Name of a benchmark -> what pytest-benchmark measured for it."""


@pytest.mark.parametrize("setup", JOB.setups, ids=str)
def test_setup(benchmark: Any, pytestconfig: pytest.Config, setup: Setup) -> None:
    """Time the variants of a setup, record them, and tell the parent process."""
    try:
        measure(benchmark, setup)
        TIMED[setup.benchmark].append(benchmark.stats)
        write(pytestconfig, setup.benchmark)
    except Exception as error:
        tell(setup, f"{type(error).__name__}: {error}".splitlines()[0])
        raise
    tell(setup, "")


def measure(benchmark: Any, setup: Setup) -> None:
    """Time the rounds of a setup; write each variant's times into ``extra_info``."""
    origin, begin = start_of_run(), time.monotonic()
    rounds = rounds_of(setup)
    count = ROUNDS[JOB.scale]
    benchmark.pedantic(rounds, setup=rounds.renew_if_due, rounds=count)
    commit, dirty = JOB.commit
    digest = code_digest(setup.task, JOB.backend)
    benchmark.extra_info.update(
        setup=setup.key,
        task=setup.task,
        config=setup.config,
        # More than 4 significant digits would be noise.
        seconds={
            name: [float(f"{each:.3e}") for each in times]
            for name, times in rounds.seconds.items()
        },
        duration=round(time.monotonic() - begin, 3),
        **origin,
        scale=JOB.scale,
        process=JOB.number,
        command=JOB.command,
        code={"commit": commit, "dirty": dirty, "digest": digest},
    )


def rounds_of(setup: Setup) -> Rounds:
    """Return the rounds of a setup, not built yet."""
    gc.collect()
    model = registry.find(JOB.backend).model_file
    module = importlib.import_module(f"harness.tasks.overhead.{model}")
    makers_of = getattr(module, setup.task)

    def build(seed: int) -> Steps:
        makers = makers_of(seed, device=JOB.device, **setup.config)
        return build_steps(makers, setup.variants, seed)

    builds = BUILDS.get(JOB.backend, 1) if JOB.scale == "std" else 1
    return Rounds(build, between_builds=ROUNDS[JOB.scale] // builds, seed=JOB.number)


def write(config: pytest.Config, benchmark: str) -> None:
    """Write all that is measured of a benchmark to its file, whole or not at all."""
    commit, dirty = JOB.commit
    content = config.hook.pytest_benchmark_generate_json(
        config=config,
        benchmarks=TIMED[benchmark],
        include_data=True,
        # Nothing that identifies the machine.
        machine_info=introduce(JOB.backend, JOB.device),
        commit_info={"id": commit, "dirty": dirty},
    )
    start = content["benchmarks"][0]["extra_info"]["start"].replace(":", "")
    name = f"{start}-{JOB.backend}-{JOB.scale}-{JOB.number}.json"
    path = JOB.out / benchmark / name
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    text = json.dumps(content, default=str, separators=(",", ":"))
    unfinished.write_text(f"{text}\n", "utf-8")
    unfinished.replace(path)


def tell(setup: Setup, reason: str) -> None:
    """Tell the parent process that a setup ended, and why it failed if it did."""
    print(f"\n{ENDED}{json.dumps([setup.key, reason])}", flush=True)
