"""Pages that sum up experiments."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.declarations import declare
from harness.errors import HarnessError
from harness.pages.findings import Answered
from harness.pages.summaries import pages, summaries, summary_page


def test_each_experiment_has_one_place_in_the_pages() -> None:
    listed = [name for page in pages() for name in page.experiments]
    assert sorted(listed) == declare.known()


def test_a_page_has_the_answers_of_its_experiments() -> None:
    answers = [Answered(declare.find(n), None, True) for n in declare.known()]
    absent = summaries(answers)[0]
    assert absent.place == "absent/index"
    text = summary_page(absent)
    for part in absent.parts:
        assert f"## {part.question.title}" in text
        assert f"../{part.question.name}.md" in text
    single = summaries([a for a in answers if a.question.name == "larc"])
    assert [page.place for page in single] == ["larc"]


def test_an_unknown_experiment_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "pages.toml"
    row = '[[page]]\nname = "a"\ntitle = "A"\nquestion = "B?"\nexperiments = ["lark"]'
    path.write_text(row, "utf-8")
    with pytest.raises(HarnessError, match=r"pages.toml: .*did you mean 'larc'"):
        pages(path)
