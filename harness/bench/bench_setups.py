"""Time the variants of each setup against each other (pytest-benchmark)."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from harness.bench.declare import read
from harness.records.code import Sources, imported
from harness.records.machine import start_of_run
from harness.timing import Rounds

MODELS = {"pytorch": "torch_model", "tf": "tf_model"}
BUILDS = 4


def test_setup(
    benchmark: Any,
    pytestconfig: pytest.Config,
    setup_id: str,
    setup: Mapping[str, str],
) -> None:
    """Time whole rounds; the times of the variants within them are what counts."""
    option = pytestconfig.getoption
    task = read(option("--declared")).task
    model = importlib.import_module(
        f"harness.tasks.{task}.{MODELS[option('--backend')]}"
    )
    build = partial(model.variants, **setup, device=option("--device"))
    wanted, begin = option("--rounds"), time.monotonic()
    origin = start_of_run()
    rounds = Rounds(build, between_builds=-(-wanted // BUILDS), seed=0)
    benchmark.pedantic(rounds, rounds=wanted)
    assert all(len(times) == wanted for times in rounds.seconds.values())
    origin["duration"] = round(time.monotonic() - begin, 3)
    origin["modules"] = Sources().of(imported(task))
    measured = {"setup": dict(setup), "seconds": rounds.seconds, "origin": origin}
    benchmark.extra_info.update(setup_id=setup_id, **measured)
