"""Every statement about a problem leads to something that shows it."""

from __future__ import annotations

import re

import pytest

from harness.pages.library import Problem, problems
from harness.processes.children import ROOT

ALL = problems()


@pytest.mark.parametrize("problem", ALL, ids=lambda problem: problem.problem)
def test_the_page_and_the_tests_of_a_problem_are_there(problem: Problem) -> None:
    path, _, anchor = problem.page.partition("#")
    if not path.startswith("generated/"):
        page = (ROOT / "docs" / path).read_text("utf-8")
        titles = {
            re.sub(r"[^\w]+", "-", title.lower()).strip("-")
            for title in re.findall(r"^##+ (.+)$", page, re.MULTILINE)
        }
        assert not anchor or f"{{ #{anchor} " in page or anchor in titles
    for test in problem.tests:
        file, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text("utf-8"), re.M)


def test_a_statement_about_another_tool_is_shown_by_a_script_or_an_experiment() -> None:
    shown = ("coming_from.md", "differences.md", "generated/experiments/")
    said = [problem for problem in ALL if problem.elsewhere]
    assert [each.problem for each in said if not each.page.startswith(shown)] == []
    # What nothing here runs has been reported, and what is said of Lockstep is tested.
    rest = [problem for problem in ALL if not problem.elsewhere]
    assert rest and all(each.reported and each.tests for each in rest)
