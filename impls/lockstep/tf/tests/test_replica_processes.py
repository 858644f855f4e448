"""Two processes of a MultiWorkerMirroredStrategy end as one with the joined batch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lockstep
from lockstep.tf.tests.addresses import free_addresses
from lockstep.tf.tests.rank_steps import OPTIMIZERS, trained_alone

pytestmark = pytest.mark.slow

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks() -> Ranks:
    """What each of two ranks says."""
    workers = free_addresses(2)

    def started(rank: int) -> subprocess.Popen[str]:
        task = {"type": "worker", "index": rank}
        return subprocess.Popen(
            [sys.executable, "-m", "lockstep.tf.tests.rank_steps"],
            env={
                **os.environ,
                "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task}),
                "PYTHONPATH": str(Path(lockstep.__file__).parents[1]),
                "CUDA_VISIBLE_DEVICES": "",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    with ExitStack() as running:
        children = [running.enter_context(started(rank)) for rank in range(2)]
        for child in children:
            running.callback(child.kill)
        said = [child.communicate(timeout=300) for child in children]
    assert [child.returncode for child in children] == [0, 0], said[0][1][-2000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in said]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_processes_end_as_one_with_the_joined_batch(
    ranks: Ranks, name: str
) -> None:
    first, second = (rank[name] for rank in ranks)
    assert first == second
    for got, expected in zip(first, trained_alone(name), strict=True):
        # Sums of two shares; small integers, which add without rounding.
        np.testing.assert_array_max_ulp(np.float32(got), np.float32(expected), 1)


def test_optimize_loss_averages_over_processes_and_micro_batches(ranks: Ranks) -> None:
    # The mean of four gradients is [1.5, 0.5].
    assert [rank["accumulated"] for rank in ranks] == [[[0.25, 0.75], 1, None]] * 2


def test_a_step_that_overflows_in_one_process_is_skipped_in_both(ranks: Ranks) -> None:
    # Once the mean of two gradients, [2, 1], then half of the scale.
    assert [rank["mixed"] for rank in ranks] == [[[0.0, 0.5], 1, 2.0**13]] * 2
