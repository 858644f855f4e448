"""Progress: what it counts and estimates, and how it is shown."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from harness.runs import progress
from harness.runs.progress import Progress


def test_lines_have_the_part_the_whole_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 6.0, 12.0, 18.0, 24.0, 30.0])
    now = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(progress, "time", now)
    with Progress() as lines:
        lines.expect("a", 2)
        lines.expect("b", 3)
        for part in ("a", "b", "b", "a", "b"):
            lines.advance(part)
    assert capsys.readouterr().out.splitlines() == [
        "a: 1 of 2 runs; 1 of 5 in all, about 24 s left",
        "b: 2 of 3 runs; 3 of 5 in all, about 12 s left",
        "a: 2 of 2 runs; 4 of 5 in all, about 6 s left",
        "b: 3 of 3 runs; 5 of 5 in all, about 0 s left",
    ]


def test_a_part_that_stops_early_leaves_no_time() -> None:
    lines = Progress()
    lines.expect("a", 100)
    lines.advance("a")
    lines.close("a")
    assert lines.total == 1


def test_on_a_terminal_a_bar_shows_the_whole_and_the_part_at_work() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=True, width=100)) as bar:
        bar.expect("absent, tf", 3)
        bar.expect("later, tf", 2)
        bar.advance("absent, tf")
        bar.advance("absent, tf")
        bar.write("a [sentence]")
    shown = stream.getvalue()
    assert "absent, tf" in shown and "2/5" in shown and "about 0 s left" in shown
    assert "a [sentence]" in shown
