"""Inserts of the share of mutants that were killed, and of the survivors."""

from __future__ import annotations

from pathlib import Path

from harness.mutation.summary import Summary, Survivor, summarize
from harness.pages.markup.tables import CARDS, Cell, table
from harness.pages.markup.templating import number, render
from lockstep.registry import BACKENDS

__all__ = ["COMMAND", "mutants_inserts"]

COMMAND = ".venv/bin/nox -s mutants -- --backend reference"
NOT_YET = "not explained yet"


def mutants_inserts(results: Path) -> dict[str, str]:
    """Return the tables of shares and of survivors; without results, inserts say so."""
    summaries_or_none = [
        summarize(backend, results / "mutants") for backend in BACKENDS
    ]
    summaries = [
        summary
        for summary in summaries_or_none
        if summary is not None and summary.tried
    ]
    if not summaries:
        nothing = render("not_measured.md.jinja", command=COMMAND)
        return {"mutants": nothing, "mutants_alive": ""}
    shares = f"{_sentence(summaries)}\n\n{_shares(summaries)}"
    return {"mutants": shares, "mutants_alive": _survivors(summaries)}


def _sentence(summaries: list[Summary]) -> str:
    """Return a sentence: how many mutants were tested, and the share killed."""
    return f"Tried so far: {'; '.join(map(_told, summaries))}."


def _told(summary: Summary) -> str:
    share, first = summary.share, summary.share_at_once
    assert share is not None and first is not None
    tried = f"on {summary.backend} {summary.tried} of {summary.drawn}"
    text = f"{tried}, of which {share:.1%} were killed"
    if summary.exhaustive:
        return text
    interval = f"95% interval {float(first.low):.1%} to {float(first.high):.1%}"
    return f"{text}, {float(first.estimate):.1%} at the first try ({interval})"


def _shares(summaries: list[Summary]) -> str:
    rows = [_row(summary) for summary in summaries]
    columns = [
        "Backend",
        "Mutants",
        "To try",
        "Tried",
        "Killed",
        "Share killed",
        "At the first try",
        "95% interval",
        "By a case",
        "By a test",
        "By time or crash",
        "Not importable",
    ]
    return table("Mutants killed by cases and tests", columns, rows)


def _row(summary: Summary) -> list[Cell | str]:
    killed, share, first = summary.killed, summary.share, summary.share_at_once
    assert share is not None and first is not None
    interval = f"{float(first.low):.1%} to {float(first.high):.1%}"
    cells = [
        summary.mutants,
        summary.drawn,
        summary.tried,
        sum(killed.values()),
    ]
    by = [
        killed.get("case", 0),
        killed.get("test", 0),
        killed.get("time", 0) + killed.get("crash", 0),
        summary.broken,
    ]
    return [
        summary.backend,
        *map(_number, cells),
        _percent(share),
        _percent(float(first.estimate)),
        "all tried" if summary.exhaustive else interval,
        *map(_number, by),
    ]


def _survivors(summaries: list[Summary]) -> str:
    rows = [
        _survivor(survivor) for summary in summaries for survivor in summary.survivors
    ]
    columns = ["File", "Function", "Before", "After", "Why it may live"]
    return table("Mutants that survived", columns, rows, filtered=True, style=CARDS)


def _survivor(survivor: Survivor) -> list[Cell | str]:
    path = survivor.path.removeprefix("impls/lockstep/")
    reason = survivor.reason or NOT_YET
    return [path, survivor.definition, survivor.before, survivor.after, reason]


def _percent(value: float) -> Cell:
    return Cell(f"{value:.1%}", value)


def _number(value: int) -> Cell:
    return Cell(number(value), float(value))
