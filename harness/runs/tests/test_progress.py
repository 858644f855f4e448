"""Progress: what it counts and estimates, and how it is shown."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.runs.progress import Progress


def test_the_time_left_is_that_of_all_parts_shared_by_the_jobs() -> None:
    progress = Progress(jobs=2)
    progress.expect("a", 10)
    progress.expect("b", 5)
    assert progress.left is None
    progress.advance("a", 60.0)
    # In the first run of a part a framework loads what it needs.
    assert progress.left is None
    progress.advance("a", 4.0)
    progress.advance("a", 2.0)
    # A run takes 3 s; of b nothing is known yet.
    assert progress.left == pytest.approx((7 * 3 + 5 * 3) / 2)
    progress.advance("b", 60.0)
    progress.advance("b", 9.0)
    assert progress.left == pytest.approx((7 * 3 + 3 * 9) / 2)
    assert (progress.done, progress.total) == (5, 15)


def test_lines_have_the_part_the_whole_and_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress() as lines:
        lines.expect("a", 2)
        lines.expect("b", 3)
        for part in ("a", "b", "b", "a", "b"):
            lines.advance(part, 1.0)
    assert capsys.readouterr().out.splitlines() == [
        "a: 1 of 2 runs; 1 of 5 in all",
        "a: 2 of 2 runs; 4 of 5 in all, about 1 s left",
        "b: 3 of 3 runs; 5 of 5 in all, about 0 s left",
    ]


def test_a_part_that_stops_early_leaves_no_time() -> None:
    lines = Progress()
    lines.expect("a", 100)
    lines.advance("a", 1.0)
    lines.close("a")
    assert (lines.total, lines.left) == (1, 0)


def test_on_a_terminal_a_bar_shows_the_whole_and_the_part_at_work() -> None:
    stream = io.StringIO()
    with Progress(console=Console(file=stream, force_terminal=True, width=100)) as bar:
        bar.expect("absent, tf", 3)
        bar.expect("later, tf", 2)
        bar.advance("absent, tf", 99.0)
        bar.advance("absent, tf", 60.0)
        bar.write("a [sentence]")
    shown = stream.getvalue()
    assert "absent, tf" in shown and "2/5" in shown and "about 3.0 min left" in shown
    assert "a [sentence]" in shown
