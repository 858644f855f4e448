"""Progress: what it counts and estimates, and how it is shown."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.runs.progress import Bars, Lines, Tally, duration


def test_the_time_left_is_that_of_all_parts_shared_by_the_jobs() -> None:
    tally = Tally(jobs=2)
    tally.expect("a", 10)
    tally.expect("b", 5)
    assert tally.left is None
    tally.count("a", 60.0)
    # In the first run of a part a framework loads what it needs.
    assert tally.left is None
    tally.count("a", 4.0)
    tally.count("a", 2.0)
    # A run takes 3 s; of b nothing is known yet.
    assert tally.left == pytest.approx((7 * 3 + 5 * 3) / 2)
    tally.count("b", 60.0)
    tally.count("b", 9.0)
    assert tally.left == pytest.approx((7 * 3 + 3 * 9) / 2)
    assert (tally.done, tally.total) == (5, 15)


def test_nothing_is_left_when_every_run_was_the_first_of_its_part() -> None:
    tally = Tally()
    tally.expect("a", 1)
    tally.count("a", 60.0)
    assert tally.left == 0


def test_earlier_runs_tell_how_long_a_part_takes() -> None:
    tally = Tally()
    tally.expect("a", 10, before=7.0)
    assert tally.left == pytest.approx(70)
    tally.expect("a", 4)
    assert tally.left == pytest.approx(28)
    tally.count("a", 60.0)
    assert tally.left == pytest.approx(21)
    tally.count("a", 1.0)
    assert tally.left == pytest.approx(2)


def test_lines_have_the_part_the_whole_and_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Lines(Tally()) as lines:
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
    lines = Lines(Tally())
    lines.expect("a", 100)
    lines.advance("a", 1.0)
    lines.close("a")
    assert (lines.tally.total, lines.tally.left) == (1, 0)


def test_on_a_terminal_bars_show_the_whole_and_the_part_at_work() -> None:
    stream = io.StringIO()
    with Bars(Tally(), Console(file=stream, force_terminal=True, width=100)) as bars:
        bars.expect("absent, tf", 3)
        bars.expect("later, tf", 2)
        bars.advance("absent, tf", 99.0)
        bars.advance("absent, tf", 60.0)
        bars.write("a [sentence]")
        bars.display.refresh()
        shown = stream.getvalue()
        bars.advance("absent, tf", 60.0)
        stream.truncate(0)
        bars.display.refresh()
        after = stream.getvalue()
    assert "all runs" in shown and "2/5" in shown and "about 3.0 min left" in shown
    assert "absent, tf" in shown and "later, tf" not in shown
    assert "a [sentence]" in shown
    assert "absent, tf" not in after


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (99, "99 s"), (150, "2.5 min"), (9000, "2.5 h")]
)
def test_a_duration_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert duration(seconds) == text
