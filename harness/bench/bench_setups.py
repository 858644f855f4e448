"""Time the variants of each setup against each other (pytest-benchmark)."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import pytest

from harness.bench.declare import read
from harness.timing import Rounds

MODELS = {"pytorch": "torch_model", "tf": "tf_model"}
WARM_UP = 3


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
    rounds = Rounds(model.variants(**setup, device=option("--device")), seed=0)
    benchmark.pedantic(rounds, rounds=option("--rounds"), warmup_rounds=WARM_UP)
    seconds = {name: times[WARM_UP:] for name, times in rounds.seconds.items()}
    assert all(len(times) == option("--rounds") for times in seconds.values())
    benchmark.extra_info.update(setup_id=setup_id, setup=dict(setup), seconds=seconds)
