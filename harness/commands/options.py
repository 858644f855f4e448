"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Names = Annotated[list[str] | None, typer.Argument(help="Names; default: all of them.")]
Backends = Annotated[
    list[str] | None, typer.Option(help="A backend (repeatable); default: all.")
]
Modes = Annotated[
    list[str] | None,
    typer.Option("--mode", help="An execution mode of the backends (repeatable)."),
]
Families = Annotated[
    list[str] | None, typer.Option(help="A family (repeatable); default: all.")
]
Golden = Annotated[Path, typer.Option(help="A folder of golden files, FAMILY.json.")]
RowsFile = Annotated[
    Path | None, typer.Option("--report", help="Write the rows to this JSON file.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, ...")]
Publish = Annotated[
    bool, typer.Option("--publish", help="Write to results/, not results/local/.")
]

Optimizer = Annotated[
    str | None,
    typer.Option(
        help="Your own optimizer beside the others: a function in a file, mine.py:make."
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")
]

TABLE_WIDTH = 170
"""Width of tables when the output is not a terminal."""
