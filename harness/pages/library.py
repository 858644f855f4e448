"""Inserts: known problems of current tools, and what ours do in data parallel."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.pages.templating import render
from lockstep.tests.wrappers import PARALLEL

TABLE = Path(__file__).parent / "problems.toml"


@dataclass(frozen=True)
class Problem:
    """An entry of ``problems.toml``.

    Attributes:
        elsewhere: what another tool does; empty if nothing here runs that tool.
        reported: issues, as OWNER/REPOSITORY#NUMBER.
        page: the page that explains or shows it, relative to ``docs``.
        tests: FILE::NAME of each test that shows it.
    """

    group: str
    problem: str
    elsewhere: str
    here: str
    reported: Sequence[str]
    page: str
    tests: Sequence[str]

    @property
    def address(self) -> str:
        """The page's address in the built site, relative to a page in ``docs``."""
        return re.sub(r"\.md\b", ".html", self.page)

    @property
    def issues(self) -> list[tuple[str, str]]:
        """The name and address of each reported issue."""
        return [
            (
                f"{name.split('/')[-1]}#{number}",
                f"https://github.com/{name}/issues/{number}",
            )
            for name, _, number in (each.partition("#") for each in self.reported)
        ]


def problems() -> list[Problem]:
    """Return the problems in the order of the file."""
    entries = tomllib.loads(TABLE.read_text("utf-8"))["problem"]
    return [Problem(**entry) for entry in entries]


def problems_insert() -> str:
    """Return a heading and a table for each group."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems():
        groups.setdefault(problem.group, []).append(problem)
    return render("problems.html.jinja", groups=groups)


def parallel_table() -> str:
    """Return what each tool of PyTorch does in each layout, as a table in Markdown."""
    head = ("Tool", "DDP", "FSDP2", "tensor parallel")
    rows = [(name, *cells) for name, cells in PARALLEL.items()]
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
