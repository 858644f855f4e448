"""A rank that is killed ends the others with an error, and a checkpoint goes on."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

import lockstep
from lockstep.pytorch.tests.base.dying_rank import KILLED_AT, STEPS, Job, batch, train
from lockstep.pytorch.tests.base.parallel_cases import assert_close
from lockstep.pytorch.tests.ranks import errors_of, exit_codes, needs_gloo

pytestmark = needs_gloo
TORCHRUN = [
    "torch.distributed.run",
    "--standalone",
    "--local-addr=127.0.0.1",
    "--nproc-per-node=2",
    "--max-restarts=1",
]

OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it ranks that start again may find the addresses of those before."""


def trained_alone(steps: int) -> dict[str, torch.Tensor]:
    """Return the weights of one process that sees the data of both ranks."""
    job = Job()
    while job.steps < steps:
        job.step(job.net, batch(job.steps))
    return job.net.state_dict()


def weights_in(path: Path) -> dict[str, torch.Tensor]:
    return torch.load(path, weights_only=True)["net"]


def test_the_other_rank_raises_and_has_no_half_a_step(tmp_path: Path) -> None:
    codes = exit_codes(2, partial(train, folder=str(tmp_path)), tmp_path)
    assert codes == [1, -signal.SIGKILL]
    # It does not wait for the time limit of the process group.
    assert re.search("Connection (closed|reset) by peer", errors_of(tmp_path))
    for name in ("left.pt", "checkpoint.pt"):
        assert_close(weights_in(tmp_path / name), trained_alone(KILLED_AT), 0)


@pytest.mark.soak
def test_torchrun_starts_all_ranks_again_from_the_checkpoint(tmp_path: Path) -> None:
    script = Path(__file__).with_name("dying_rank.py")
    sources = str(Path(lockstep.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", *TORCHRUN, script, tmp_path],
        env={**os.environ, **OWN_STORE, "PYTHONPATH": sources},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists()
    assert_close(weights_in(tmp_path / "checkpoint.pt"), trained_alone(STEPS), 0)
