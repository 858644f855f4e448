"""The catalogue is complete, says the same everywhere, and quotes what is so."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from dataclasses import replace

import pytest

from harness.errors import HarnessError
from harness.parity.cases import FOUND, GOLDEN, Case, read_cases
from harness.parity.catalogue import (
    RECORD,
    Entry,
    Quote,
    Quoted,
    entries,
    quote,
    quotes_of,
)
from harness.parity.tables import differences
from harness.processes.children import ROOT
from lockstep import registry

PAGE = ROOT / "docs" / "differences.md"
SCRIPTS = ROOT / "docs" / "examples" / "differences"
BACKENDS = sorted({quoted.backend for entry in entries() for quoted in entry.recorded})


@pytest.fixture(scope="module")
def recorded() -> list[Quoted]:
    return [Quoted(**content) for content in json.loads(RECORD.read_text("utf-8"))]


@pytest.fixture(scope="module")
def cases() -> dict[str, Case]:
    return {c.id: c for folder in (GOLDEN, FOUND) for c in read_cases(folder)}


# -- complete --------------------------------------------------------------------------


def test_page_catalogue_and_scripts_have_the_same_entries() -> None:
    page = PAGE.read_text("utf-8")
    anchors = [entry.anchor for entry in entries()]
    assert Counter(re.findall(r"\{ #([\w-]+) \}", page)) == Counter(anchors)
    scripts = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    assert scripts == sorted(anchor.replace("-", "_") for anchor in anchors)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.anchor)
def test_a_section_shows_its_own_entry_and_no_other(entry: Entry) -> None:
    page = PAGE.read_text("utf-8")
    (section,) = re.findall(
        rf"^### [^\n]+ \{{ #{entry.anchor} \}}$(.+?)(?=^##|\Z)", page, re.M | re.S
    )
    shown = re.findall(r"<!-- examples/differences/(\w+)\.py -->", section)
    assert shown == [entry.anchor.replace("-", "_")]
    assert f"recorded_values.md#{entry.anchor})" in section
    assert section.lstrip()[:3] != "---", "a paragraph comes first"


def test_every_listed_difference_has_an_entry_that_quotes_it() -> None:
    quoting = {entry.anchor for entry in entries() if entry.recorded}
    assert {listed.anchor for listed in differences()} <= quoting


# -- true ------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_published_quotes_are_what_a_replay_gives(
    recorded: list[Quoted], backend: str
) -> None:
    if not registry.installed(backend.partition(":")[0]):
        pytest.skip(f"{backend} needs a framework that is not installed")
    published = [quoted for quoted in recorded if quoted.backend == backend]
    # The mode v1 changes TensorFlow for good.
    now = quotes_of(backend) if backend == "tf:v1" else quoted_here(backend)
    assert now == published, "write them anew: nox -s parity -- --quotes"


def quoted_here(backend: str) -> list[Quoted]:
    """Replay the quotes of a backend without a process of its own."""
    known = {c.id: c for folder in (GOLDEN, FOUND) for c in read_cases(folder)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [
            quote(entry.anchor, given, known[given.case])
            for entry in entries()
            for given in entry.recorded
            if given.backend == backend
        ]


def test_every_quote_is_published(recorded: list[Quoted]) -> None:
    wanted = Counter(
        (entry.anchor, given.case, given.quantity, given.backend)
        for entry in entries()
        for given in entry.recorded
    )
    found = Counter((q.anchor, q.case, q.quantity, q.backend) for q in recorded)
    assert found == wanted


def test_strict_gives_what_was_recorded(recorded: list[Quoted]) -> None:
    assert recorded
    assert [q for q in recorded if q.strict != q.recorded] == []


def test_where_the_modes_part_the_difference_is_listed(
    recorded: list[Quoted], cases: dict[str, Case]
) -> None:
    unlisted = [
        (quoted.anchor, quoted.case)
        for quoted in recorded
        if quoted.default != quoted.strict
        and not any(
            listed.anchor == quoted.anchor
            and listed.concerns(cases[quoted.case], quoted.backend.partition(":")[0])
            for listed in differences()
        )
    ]
    assert unlisted == []


@pytest.mark.parametrize(
    "entry", [e for e in entries() if e.recorded], ids=lambda entry: entry.anchor
)
def test_the_marks_are_what_the_quotes_show(
    recorded: list[Quoted], entry: Entry
) -> None:
    own = [quoted for quoted in recorded if quoted.anchor == entry.anchor]
    apart = [quoted for quoted in own if quoted.default != quoted.recorded]
    alike = not {"fixed", "refused", "own"} & set(entry.does)
    # An error may have the same class for another reason; the note says which.
    explained = all("raises" in quoted.default and quoted.note for quoted in own)
    assert bool(apart) != alike or explained
    if entry.does == ["refused"]:
        assert all(quoted.default == "raises ValueError" for quoted in own)


# -- able to fail ----------------------------------------------------------------------


def test_a_quantity_that_no_case_has_is_noticed(cases: dict[str, Case]) -> None:
    wanted = Quote("loss_scale_dynamic-p-018", "loss_scale", step=2)
    found = quote("dynamic-scale-floor", wanted, cases[wanted.case])
    assert (found.recorded, found.strict, found.default) == ("1", "1", "0.25")
    for wrong in replace(wanted, quantity="los_scale"), replace(wanted, step=100):
        with pytest.raises(HarnessError, match="expected a quantity of the case"):
            quote("dynamic-scale-floor", wrong, cases[wanted.case])
