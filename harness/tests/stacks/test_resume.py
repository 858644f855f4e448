"""A run that is saved and resumed by another optimizer goes on to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.tests.stacks.savers import SAVERS, Saver
from lockstep import registry
from lockstep.tests.wrappers import STACKS

SAVED, END = 16, 21
"""Steps before which a run is saved and compared. Between them are steps with zeros, an
absent gradient, an overflow and sparse gradients."""


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.sample(12)
@pytest.mark.parametrize("backend", SAVERS)
@pytest.mark.parametrize("stack", STACKS)
def test_a_resumed_run_is_the_run_that_went_on(
    backend: str, stack: str, tmp_path: Path
) -> None:
    if not registry.installed(backend.partition(" ")[0]):
        pytest.skip(f"{backend} is not installed")
    saver: Saver = SAVERS[backend]()
    run = saver.start(stack)
    for step in range(SAVED):
        run.advance(step)
    saver.save(run, tmp_path / "saved")
    expected = went_on(saver, run)
    resumed = saver.start(stack)
    saver.restore(resumed, tmp_path / "saved")
    assert went_on(saver, resumed) == expected


def went_on(saver: Saver, run) -> dict[str, str]:
    """Go on to the end; return the state there."""
    for step in range(SAVED, END):
        run.advance(step)
    state = saver.snapshot(run)
    run.driver.close()
    return state
