"""Figures are functions of results: the same bytes, words with every picture."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from harness.declarations import declare
from harness.figures import plot, style
from harness.figures.plot import Figure
from harness.judgement.compare import compare
from harness.judgement.finding import Finding
from harness.tasks import part
from harness.tests.synthetic import publish


@pytest.fixture(scope="module")
def finding(tmp_path_factory: pytest.TempPathFactory) -> Finding:
    root = tmp_path_factory.mktemp("results")
    experiment = declare.find("absent_tasks")
    publish(experiment, root)
    found = compare(experiment, root)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def figures(finding: Finding, tmp_path_factory: pytest.TempPathFactory) -> list[Figure]:
    """The figures of one finding."""
    return plot.draw(finding, tmp_path_factory.mktemp("figures"))


def files(figure: Figure) -> list[Path]:
    narrow = [figure.narrow_light, figure.narrow_dark]
    return [figure.light, figure.dark, *narrow, figure.pdf, figure.csv]


@pytest.mark.parametrize(
    "count", [1, pytest.param(None, marks=pytest.mark.soak)], ids=["one", "all"]
)
def test_the_same_results_give_the_same_bytes(
    count: int | None, finding: Finding, figures: list[Figure], tmp_path: Path
) -> None:
    drawings = list(part(finding.task, "figures").drawings(finding))
    for first, drawing in list(zip(figures, drawings, strict=True))[:count]:
        second = plot.draw_one(drawing, tmp_path)
        for one, other in zip(files(first), files(second), strict=True):
            assert one.name == other.name
            assert one.read_bytes() == other.read_bytes(), one.name


def test_every_figure_has_words_and_files(figures: list[Figure]) -> None:
    assert [f.name for f in figures] == ["losses", "movement", "state", "backends"]
    for figure in figures:
        assert all(len(t) > 20 for t in (figure.title, figure.alt, figure.caption))
        assert [path.suffix for path in files(figure)] == [
            *[".svg"] * 4,
            ".pdf",
            ".csv",
        ]
        assert all(path.stat().st_size > 500 for path in files(figure))


def test_files_say_nothing_of_the_day(figures: list[Figure]) -> None:
    for figure in figures:
        assert "<dc:date>" not in figure.light.read_text("utf-8")
        assert b"CreationDate" not in figure.pdf.read_bytes()


def test_light_and_dark_have_the_same_methods_and_backends() -> None:
    assert list(style.LIGHT.methods) == list(style.DARK.methods)
    assert list(style.LIGHT.backends) == list(style.DARK.backends)
