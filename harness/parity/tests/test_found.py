"""What random cases found, recorded on live TensorFlow 1.15, on every backend."""

from __future__ import annotations

from functools import partial

import pytest

from harness.parity import drivers
from harness.parity.cases import FOUND, Case, read_cases
from harness.parity.replay import WITHOUT_STRICT, agree, judge
from harness.parity.tables import excuse
from lockstep import registry

CASES = read_cases(FOUND)

# Absent gradients are part of a case; Keras warns about them.
pytestmark = pytest.mark.filterwarnings("ignore:Gradients do not exist:UserWarning")


@pytest.mark.parametrize("backend", registry.BACKENDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_backend_gives_what_was_found(backend: str, case: Case) -> None:
    mode = mode_of(backend, case)
    row, _ = judge(case, backend, mode)
    assert (row.status, row.reason.partition(":")[0]) in {
        ("passed", ""),
        ("passed", "without slots/momentum"),
    }, row.reason


@pytest.mark.parametrize("backend", sorted(set(registry.BACKENDS) - WITHOUT_STRICT))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_default_differs_only_where_that_is_listed(
    backend: str, case: Case
) -> None:
    row = agree(case, partial(drivers.load, backend, mode_of(backend, case)))
    assert row.status in ("passed", "skipped"), row.reason


def mode_of(backend: str, case: Case) -> str:
    """Return the first mode that can replay a case; skip if none can."""
    if not registry.installed(backend):
        pytest.skip(f"{backend} needs a framework that is not installed")
    modes = registry.find(backend).modes
    able = [mode for mode in modes if not excuse(case, backend, mode)]
    if not able:
        pytest.skip(excuse(case, backend, modes[0]) or "")
    return able[0]
