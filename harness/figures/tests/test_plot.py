"""Figures are functions of results: the same bytes, words with every picture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

import matplotlib as mpl

from harness.declarations import declare
from harness.figures import plot, style
from harness.figures.plot import Drawing, Figure
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
def drawings(finding: Finding) -> list[Drawing]:
    """What the figures of one finding show."""
    return list(part(finding.task, "report").drawings(finding))


@pytest.fixture(
    scope="module",
    params=[1, pytest.param(None, marks=pytest.mark.soak)],
    ids=["one", "all"],
)
def figures(
    request: pytest.FixtureRequest,
    drawings: list[Drawing],
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Figure]:
    """The first figure, or all of them."""
    folder = tmp_path_factory.mktemp("figures")
    return [plot.draw_one(drawing, folder) for drawing in drawings[: request.param]]


def files(figure: Figure) -> list[Path]:
    return [figure.light, figure.dark, figure.csv]


def test_the_same_results_give_the_same_bytes(
    drawings: list[Drawing], figures: list[Figure], tmp_path: Path
) -> None:
    for first, drawing in zip(figures, drawings, strict=False):
        second = plot.draw_one(drawing, tmp_path)
        for one, other in zip(files(first), files(second), strict=True):
            assert one.name == other.name
            assert one.read_bytes() == other.read_bytes(), one.name


def test_a_dark_figure_equals_one_that_is_painted_in_the_dark_theme(
    drawings: list[Drawing], figures: list[Figure]
) -> None:
    for figure, drawing in zip(figures, drawings, strict=False):
        with mpl.rc_context(style.DARK.rc):
            painted = plot.svg_of(plot.canvas(drawing, style.DARK))
        # Matplotlib names marks and clips by a digest, also of their colours.
        one, other = (
            re.sub(r"\b[mp][0-9a-f]{10}\b", "", svg)
            for svg in (painted, figure.dark.read_text("utf-8"))
        )
        assert one == other, figure.name


def test_light_and_dark_have_the_same_methods_and_backends() -> None:
    assert list(style.LIGHT.methods) == list(style.DARK.methods)
    assert list(style.LIGHT.backends) == list(style.DARK.backends)
    pairs = set(zip(style.LIGHT.colors, style.DARK.colors, strict=True))
    assert len(pairs) == len(set(style.LIGHT.colors)), "a light colour is two dark ones"
