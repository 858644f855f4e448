"""Inserts of the base optimizers and of the pipeline, from the shared tables."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.pages.tables import CARDS, Cell, table
from harness.pages.templating import render
from lockstep.interface import WRAPPERS
from lockstep.optimizers import OPTIMIZERS, OptimizerSpec, Parameter
from lockstep.pipeline import ARGUMENTS, STAGES, Stage
from lockstep.tests.parallel import PARALLEL


def optimizers_insert() -> str:
    """Return the table of optimizers: arguments with defaults, and state."""
    rows = [_row(spec) for spec in OPTIMIZERS.values()]
    columns = ["Class", "Arguments, in order", "State of each variable (initial value)"]
    return table("Arguments and state", columns, rows)


def pipeline_insert() -> str:
    """Return the table of stages: description, wrappers and argument of each."""
    rows = [_stage(number, stage) for number, stage in enumerate(STAGES, 1)]
    columns = ["Stage", "What happens", "Wrapper", "Argument"]
    title = "The pipeline, and which argument of optimize_loss asks for a stage"
    return table(title, columns, rows, style=CARDS)


def _stage(number: int, stage: Stage) -> list[Cell | str]:
    wrappers = [name for name, each in WRAPPERS.items() if stage.name in each]
    if stage.name in ("norm", "clip"):
        wrappers = [f"{name} with clip_norm" for name in WRAPPERS if "Mixed" in name]
    taken_by, argument = ", ".join(wrappers), ARGUMENTS.get(stage.name, "")
    return [
        Cell(f"{number}\N{NO-BREAK SPACE}{stage.name}", f"{number:02}"),
        stage.sentence,
        Cell(taken_by, taken_by, "code wrap"),
        Cell(argument, argument, "code"),
    ]


def _row(spec: OptimizerSpec) -> list[Cell | str]:
    arguments = ", ".join(_argument(parameter) for parameter in spec.parameters)
    slots = ", ".join(
        f"{slot.name} ({slot.initial})"
        + (f" if {slot.only_if}" if slot.only_if else "")
        for slot in spec.slots
    )
    return [
        Cell(spec.class_name, spec.class_name, "code"),
        Cell(arguments, arguments, "code wrap"),
        slots or "none",
    ]


def _argument(parameter: Parameter) -> str:
    if not isinstance(parameter.default, int | float | str):
        return parameter.name
    return f"{parameter.name}={parameter.default!r}"


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


def checkout_inserts(root: Path) -> dict[str, str]:
    """Return the inserts: two commands, and the sessions of the noxfile."""
    tests = (root / ".ci" / "run").read_text("utf-8").strip().splitlines()[-2]
    return {
        "command_tests": _console(tests),
        "command_reproduce": _console(f"{tests.removesuffix('tests')}reproduce"),
        "sessions": _sessions((root / "noxfile.py").read_text("utf-8")),
    }


def _console(command: str) -> str:
    """Return a command as a code block, with a line break after each ``&&``."""
    return "```console\n" + command.replace(" && ", " &&\n") + "\n```\n"


def _sessions(source: str) -> str:
    """Return the table of nox sessions: each command with the session's docstring."""
    rows: list[list[Cell | str]] = [
        [Cell(f"nox -s {name}", name, "code"), ast.get_docstring(function) or ""]
        for function in ast.parse(source).body
        if isinstance(function, ast.FunctionDef)
        for name in _session_names(function)
    ]
    return table("Sessions", ["Command", "What it does"], rows)


def _session_names(function: ast.FunctionDef) -> list[str]:
    """Return the name of a function as a nox session; empty if it is no session."""
    for decorator in function.decorator_list:
        if ast.unparse(decorator) == "nox.session":
            return [function.name]
        if (
            isinstance(decorator, ast.Call)
            and ast.unparse(decorator.func) == "nox.session"
        ):
            named = {
                word.arg: ast.literal_eval(word.value) for word in decorator.keywords
            }
            return [str(named.get("name", function.name))]
    return []
