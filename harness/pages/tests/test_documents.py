"""Pages written by hand say what the code, its tests and its scripts say."""

from __future__ import annotations

import re

import pytest

from harness.parity.tables import differences
from harness.processes.children import ROOT
from lockstep.pipeline import WRAPPERS
from lockstep.registry import BACKENDS
from lockstep.tests.wrappers import PARALLEL

DOCS = ROOT / "docs"


def page(name: str) -> str:
    return (DOCS / name).read_text("utf-8")


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_public_name_is_on_the_reference_page_of_its_backend(
    backend: str,
) -> None:
    text = page(f"reference/{'numpy' if backend == 'reference' else backend}.md")
    shown = re.findall(rf"^::: lockstep\.{backend}\.(?:\w+\.)*(\w+)$", text, re.M)
    shown += re.findall(r"^`(\w+)` is `tf\.", text, re.M)
    assert len(shown) == len(set(shown))
    # A wrapper of ours may begin on one backend.
    package = ROOT / "impls" / "lockstep" / backend / "__init__.py"
    imported = package.read_text("utf-8")
    names = BACKENDS[backend].public_names()
    there = {n for n in names if n not in WRAPPERS or re.search(rf"\b{n}\b", imported)}
    # OpenSeq2Seq's spelling of other names begins with an underscore.
    assert {name for name in there if not name.startswith("_")} <= set(shown)


def test_every_difference_shows_its_script_and_every_script_has_a_difference() -> None:
    text = page("differences.md")
    shown = re.findall(r"<!-- examples/differences/(\w+)\.py -->", text)
    anchors = re.findall(r"^### .+ \{ #([\w-]+)(?: \.\w+)+ \}$", text, re.M)
    assert shown == [anchor.replace("-", "_") for anchor in anchors]
    folder = DOCS / "examples" / "differences"
    assert sorted(shown) == sorted(path.stem for path in folder.glob("*.py"))
    assert {listed.anchor for listed in differences()} <= set(anchors)


def test_every_problem_is_shown_by_a_page_and_by_tests_that_exist() -> None:
    problems = page("problems.md").split("\n### ")[1:]
    assert problems
    for problem in problems:
        _, shown = problem.split("\n**Shown by:** ")
        assert shown.startswith("[")
        for file, name in re.findall(r"`(\S+)::(\w+)`", shown):
            assert re.search(rf"^def {name}\(", (ROOT / file).read_text("utf-8"), re.M)


def test_the_table_of_data_parallel_training_has_what_is_tested() -> None:
    rows = [f"| {' | '.join((name, *cells))} |" for name, cells in PARALLEL.items()]
    assert "\n".join(rows) in page("data_parallel.md")
