"""Each quirk is a section of docs/differences.md, and turning it off can be seen."""

from __future__ import annotations

import contextlib
import io
import runpy
import warnings
from dataclasses import fields
from functools import cache

import pytest

from harness.parity import drivers
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.catalogue import Entry, entries
from harness.parity.mutants.mutant import without_quirk
from harness.parity.replay import replay
from harness.processes import ROOT
from lockstep import registry
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


CONVERTED = {
    "pytorch": (
        "backoff_range",
        "clip_absent",
        "clip_duplicates",
        "clip_limit",
        "clip_scalar",
        "dynamic_scale_floor",
        "ftrl_nan",
        "ftrl_zero_rate",
        "half_precision_scalars",
        "larc_sparse",
        "larc_zero_norm",
        "logmax_overflow",
        "loss_scale_fixed",
        "loss_scale_float16",
        "masters_scale_type",
        "masters_static_scale",
        "multitask_clip_dtypes",
        "multitask_clip_float16",
        "multitask_clip_range",
        "multitask_clip_sparse",
        "multitask_in_place",
        "multitask_nesting",
        "multitask_shared_state",
        "multitask_subnormals",
        "novograd_limits",
        "novograd_second_moment",
        "optimize_loss_accumulated",
        "optimize_loss_flag",
        "optimize_loss_instance",
        "optimize_loss_iter_size",
        "optimize_loss_scaler",
        "policies_cosine",
        "policies_float16",
        "policies_inverse",
        "row_clip_below",
        "row_clip_duplicates",
        "row_clip_float16",
        "row_clip_iterator",
        "row_clip_range",
        "row_clip_subnormals",
        "row_clip_subtracted",
    ),
}
"""The quirks that a backend asks for by name and that a recorded case shows there."""


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


def failing(cases: list[Case], backend: str = "reference") -> list[str]:
    """Return the ids of the cases that a backend does not pass."""
    driver = drivers.load(backend)
    return [case.id for case in cases if replay(case, driver).status != "passed"]


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


QUOTED = [quirk for quirk in QUIRKS if quoted_cases(quirk)]


@pytest.mark.parametrize("quirk", QUOTED)
def test_a_recorded_case_fails_without_the_quirk(quirk: str) -> None:
    cases = quoted_cases(quirk)
    assert failing(cases) == []
    with without_quirk(quirk):
        assert bool(failing(cases)) != (quirk in SAME_ERROR)


@pytest.mark.parametrize(
    ("backend", "quirk"),
    [(backend, quirk) for backend, quirks in CONVERTED.items() for quirk in quirks],
)
def test_a_recorded_case_fails_without_the_quirk_on(backend: str, quirk: str) -> None:
    if not registry.installed(backend):
        pytest.skip(f"{backend} is not installed")
    cases = quoted_cases(quirk)
    assert failing(cases, backend) == []
    with without_quirk(quirk):
        assert failing(cases, backend) != []


@pytest.mark.parametrize("quirk", QUIRKS)
def test_the_script_of_the_section_shows_strict_without_the_quirk(quirk: str) -> None:
    with without_quirk(quirk):
        lines = printed(quirk)
    assert lines != shown(quirk)
    by_default = [line for line in shown(quirk) if not line.startswith("strict")]
    assert [line for line in lines if not line.startswith("strict")] == by_default
