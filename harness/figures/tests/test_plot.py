"""Figures are functions of results: the same bytes, words with every picture."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

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
    return list(figure.files)


def test_the_same_results_give_the_same_bytes(
    drawings: list[Drawing], figures: list[Figure], tmp_path: Path
) -> None:
    for first, drawing in zip(figures, drawings, strict=False):
        second = plot.draw_one(drawing, tmp_path)
        for one, other in zip(files(first), files(second), strict=True):
            assert one.name == other.name
            assert one.read_bytes() == other.read_bytes(), one.name


def test_every_colour_of_a_figure_has_another_in_the_dark() -> None:
    light = style.LIGHT
    used = {light.ink, light.faint, *light.methods.values(), *light.backends.values()}
    assert used == set(style.DARK_FOR)
    text = f"fill: {light.ink}; stroke: #010203"
    assert style.in_dark(text) == f"fill: {style.DARK_FOR[light.ink]}; stroke: #010203"
