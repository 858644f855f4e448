"""Each quirk is a section of docs/differences.md, and turning it off can be seen."""

from __future__ import annotations

import contextlib
import io
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import fields, replace
from functools import cache
from unittest import mock

import pytest

from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.catalogue import Entry, entries
from harness.parity.replay import replay
from harness.processes.children import ROOT
from lockstep import quirks
from lockstep.quirks import Quirks

SCRIPTS = ROOT / "docs" / "examples" / "differences"
QUIRKS = [field.name for field in fields(Quirks)]

RENAMED = {
    "arguments-checked": "arguments_unchecked",
    "row-clip-written": "row_clip_subtracted",
}
"""Anchors that are called after the default; a field is called after the original."""

SAME_IN_BOTH = {
    "agn-race": "both modes push the mean",
    "agn-tensor-step": "both modes refuse a tensor",
    "backoff-race": "both modes read the counter before the increment",
    "backoff-window": "kept: no counter is set back",
    "larc-adamw": "both modes take the norm before the decay",
    "multitask-clip-nonfinite": "kept: every gradient becomes NaN",
    "optimize-loss-value": "both modes return the loss before the update",
    "policies-poly": "kept: the decay begins during the warm-up",
    "row-clip-absent": "kept: zeros clip, an absent gradient does not",
}
"""Sections about what no mode changes, and what that is."""

NOT_ON_THE_REFERENCE = {
    "agn_local_step": "TensorFlow: variables on devices",
    "agn_powers": "PyTorch and Keras 3: the reference keeps the optimizer's powers",
    "agn_reference_variables": "TensorFlow: reference variables",
    "agn_regularizer": "TensorFlow: a collection of regularization losses",
    "masters_half_loss": "a loss of the reference has no dtype",
    "masters_regularizer": "TensorFlow: a collection of regularization losses",
    "masters_twice": "TensorFlow: a graph makes masters at each call",
    "multitask_dense_shape": "TensorFlow: reference variables",
}
"""Quirks that the reference does not ask for, and why."""


SAME_ERROR = {
    "masters_absent": "the only gradient is absent: the step fails as one without any",
}
"""Quirks without which the recorded case fails in the same class for this reason."""


# Their scripts compare two backends, or TensorFlow's classes, which have no quirks.
NO_QUIRK = (
    "agn_local_step",
    "agn_powers",
    "agn_reference_variables",
    "agn_regularizer",
)


def field_of(entry: Entry) -> str:
    return RENAMED.get(entry.anchor, entry.anchor.replace("-", "_"))


ENTRIES = {field_of(entry): entry for entry in entries()}


@cache
def recorded() -> dict[str, Case]:
    return {c.id: c for folder in (GOLDEN, FOUND) for c in read_cases(folder)}


def quoted_cases(quirk: str) -> list[Case]:
    """Return the recorded cases that the section quotes of the reference."""
    quotes = ENTRIES[quirk].recorded
    ids = dict.fromkeys(q.case for q in quotes if q.backend == "reference")
    return [recorded()[id] for id in ids]


def statuses(cases: list[Case]) -> list[str]:
    """Return what the reference makes of cases: "passed", "skipped" or "failed"."""
    driver = drivers.load("reference")
    with closing(driver):
        return [replay(case, driver).status for case in cases]


def printed(quirk: str) -> list[str]:
    """Run the script of a section; return its lines, and the error that ended it."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            runpy.run_path(str(SCRIPTS / f"{ENTRIES[quirk].script}.py"))
        except Exception as error:
            print(f"strict: {error}")
    return output.getvalue().splitlines()


def shown(quirk: str) -> list[str]:
    """Return the lines of a script that the page shows."""
    text = (SCRIPTS / f"{ENTRIES[quirk].script}.out").read_text("utf-8")
    return text.splitlines()


def test_every_section_is_a_quirk_or_has_the_reason_why_not() -> None:
    left = [field_of(entry) for entry in entries() if entry.anchor not in SAME_IN_BOTH]
    assert sorted(QUIRKS) == sorted(left)
    assert {*SAME_IN_BOTH, *RENAMED} <= {entry.anchor for entry in entries()}


@pytest.mark.parametrize("quirk", NOT_ON_THE_REFERENCE)
def test_a_quirk_of_other_backends_is_not_recorded_on_the_reference(quirk: str) -> None:
    assert quirk in QUIRKS and not quoted_cases(quirk)


def without_quirk(name: str) -> AbstractContextManager[object]:
    """Disable one quirk of strict for objects created inside the block."""
    others = replace(quirks.STRICT, **{name: False})
    return mock.patch.object(quirks, "STRICT", others)


QUOTED = [quirk for quirk in QUIRKS if quoted_cases(quirk)]


@pytest.mark.parametrize("quirk", QUOTED)
def test_a_recorded_case_fails_without_the_quirk(quirk: str) -> None:
    cases = quoted_cases(quirk)
    assert set(statuses(cases)) == {"passed"}
    with without_quirk(quirk):
        assert ("failed" in statuses(cases)) != (quirk in SAME_ERROR)


@pytest.fixture
def control_flow() -> Iterator[None]:
    """Turn TensorFlow's control flow v2 on again, which a script turns off."""
    yield
    if "tensorflow" in sys.modules:
        sys.modules["tensorflow"].compat.v1.enable_control_flow_v2()


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("quirk", [q for q in QUIRKS if q not in NO_QUIRK])
def test_the_script_of_the_section_shows_strict_without_the_quirk(quirk: str) -> None:
    text = (SCRIPTS / f"{ENTRIES[quirk].script}.py").read_text("utf-8")
    for framework in ("tensorflow", "torch"):
        if f"import {framework}\n" in text:
            pytest.importorskip(framework)
    with without_quirk(quirk):
        lines = printed(quirk)
    assert lines != shown(quirk)
    by_default = [line for line in shown(quirk) if not line.startswith("strict")]
    assert [line for line in lines if not line.startswith("strict")] == by_default
