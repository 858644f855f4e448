"""Progress: what it counts and estimates, and how it is shown."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from harness import progress
from harness.progress import Progress


def test_lines_have_the_whole_and_the_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 6.0, 12.0, 18.0, 24.0])
    now = SimpleNamespace(monotonic=lambda: next(clock))
    monkeypatch.setattr(progress, "time", now)
    with Progress("runs", 5) as lines:
        for part in ("a", "b", "b"):
            lines.advance(part)
        lines.expect(-1)
        lines.advance("a")
    assert capsys.readouterr().out.splitlines() == [
        "a: 1 of 5 runs, about 24 s left",
        "b: 3 of 5 runs, about 12 s left",
        "a: 4 of 4 runs, about 0 s left",
    ]


def test_on_a_terminal_a_bar_shows_the_whole_and_the_part_at_work() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=100)
    with Progress("runs", 5, console) as bar:
        bar.advance("absent, tf")
        bar.advance("absent, tf")
        bar.write("a [sentence]")
    shown = stream.getvalue()
    assert "absent, tf" in shown and "2/5" in shown and "left" in shown
    assert "a [sentence]" in shown
