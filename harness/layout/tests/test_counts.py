"""Counts of modules, on small checkouts whose numbers are known."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from rich.console import Console

from harness.layout.calls import Calls
from harness.layout.goals import COUNT_GOALS, STEP_GOALS
from harness.layout.modules import Module, has_docstring, read_modules
from harness.layout.repetition import REPETITION, participles
from harness.layout.report import (
    FILE,
    PARTS,
    ROOT,
    Counts,
    Layout,
    read_layout,
    static_counts,
    write_layout,
)
from harness.layout.sizes import SIZES
from harness.layout.steps import PARTS as STEP_PARTS
from harness.pages.markup.templating import number
from harness.pages.project.layout import layout_inserts
from harness.records.files import RESULTS
from lockstep.interface import EXPORTS
from lockstep.registry import BACKENDS

TEXT = '''\
"""A module.

Of two functions.
"""

import math  # a comment


class Public:
    """A class."""

    def method(self):
        text = """one
        two"""
        return text

    @property
    def size(self):
        """A number."""

    @size.setter
    def size(self, value): ...

    def _private(self):
        def nested():
            pass

        return nested


def function():
    """Only this."""


def test_function(): ...
'''


def module(text: str, path: str = "impls/lockstep/a.py") -> Module:
    return Module(Path(path), dedent(text))


def test_a_module_knows_its_lines_statements_and_functions() -> None:
    made_up = module(TEXT)
    assert made_up.lines == 35
    # import, class, def, text over two lines, return, @, def, @, def, def, def, pass,
    # return, def, def
    assert made_up.code_lines == 16
    assert made_up.statements == 19
    assert sorted(made_up.body_lengths) == [0, 0, 1, 1, 1, 3, 4]
    public = [node.name for node in made_up.public]
    assert public == ["Public", "method", "size", "function"]
    assert SIZES["public names with a docstring, %"]([made_up]) == 75


def undocumented(module: Module) -> list[str]:
    """The module and its public names that have no docstring, by path and line."""
    nodes = [module.tree, *module.public] if module.text.strip() else []
    lines = [getattr(n, "lineno", 1) for n in nodes if not has_docstring(n)]
    return [f"{module.path}:{line}" for line in lines]


def test_what_has_no_docstring_is_found() -> None:
    assert undocumented(module(TEXT)) == ["impls/lockstep/a.py:12"]
    assert undocumented(module("x = 1\n")) == ["impls/lockstep/a.py:1"]
    assert undocumented(module("")) == []
    shared = '"""Text."""\n@documented\ndef f(): ...\n@other\ndef g(): ...\n'
    assert undocumented(module(shared)) == ["impls/lockstep/a.py:5"]


@pytest.mark.parametrize("part", PARTS)
def test_every_module_and_public_name_has_a_docstring(part: str) -> None:
    missing = [text for m in read_modules(ROOT, part) for text in undocumented(m)]
    assert not missing, f"no docstring: {missing}"


def test_sizes_of_modules_without_tests_and_old_programs(tmp_path: Path) -> None:
    long = "x = 1\n" * 301
    body = "".join(f"    x = {k}\n" for k in range(46))
    texts = {
        "part/a.py": long,
        "part/b.py": f"def f():\n{body}",
        "part/c/__init__.py": '"""Documented."""\n',
        "part/room/d.py": f'def f():\n    """Text."""\n{body[10:]}',
        "part/tests/test_a.py": long,
        "part/programs/old.py": long,
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    modules = read_modules(tmp_path, "part")
    assert {name: count(modules) for name, count in SIZES.items()} == {
        "lines": 301 + 47 + 1 + 47,
        "modules": 4,
        "modules in one folder, at most": 2,
        "modules with 25 lines of code or fewer": 1,
        "of these, __init__.py of a package": 1,
        "statements": 301 + 47 + 1 + 47,
        "files over 300 lines": 1,
        "functions over 45 lines": 1,
        # of 45 and 46, and of 1, 47, 47 and 301
        "lines of a function's body, 90th percentile": 46,
        "lines of a file, 90th percentile": 225,
        "public names with a docstring, %": 50,
    }


def repeated(text: str, *more: tuple[str, str]) -> dict[str, int]:
    modules = [module(text), *(module(text, path) for path, text in more)]
    return {name: count(modules) for name, count in REPETITION.items()}


def test_a_docstring_line_counts_once_if_two_backends_have_it() -> None:
    name = "docstring lines that two backends have word for word"
    text = '"""Return the clipped gradients.\n\nArgs:\n    x: a tensor of its own.\n"""'
    other = '"""Return the clipped gradients."""'
    folder = "impls/lockstep"
    both = [(f"{folder}/tf/a.py", text), (f"{folder}/pytorch/a.py", other)]
    assert repeated("", *both)[name] == 1
    assert repeated("", *both, (f"{folder}/keras3/a.py", text))[name] == 2
    assert repeated("", (f"{folder}/tf/a.py", text), (f"{folder}/tf/b.py", text)) == (
        dict.fromkeys(REPETITION, 0)
    )


def test_error_builders_are_counted_by_their_calls() -> None:
    counts = repeated(
        """
        def once() -> ShapeError: ...
        def twice() -> "errors.DtypeError": ...
        def other() -> Error2: ...

        once()
        twice()
        messages.twice()
        """
    )
    assert counts["functions that build an error"] == 2
    assert counts["functions that build an error, called in one place at most"] == 1


def test_public_names_are_listed_in_literals_and_bound_in_modules() -> None:
    half = list(EXPORTS)[: (len(EXPORTS) + 1) // 2]
    less = list(EXPORTS)[: (len(EXPORTS) - 1) // 2]
    texts = {
        "literal": f"NAMES = {half!r}",
        "keys": f"NAMES = {dict.fromkeys(half, 1)!r}",
        "imports": "\n".join(f"from lockstep.tf import {name}" for name in half),
        "definitions": "\n".join(f"{name} = 1" for name in half[2:])
        + f"\nclass {half[0]}: ...\nfrom lockstep.tf import {half[1]}",
        "less": f"NAMES = {less!r}",
        "less bound": "\n".join(f"{name} = 1" for name in less),
    }
    counts = {name: repeated(text) for name, text in texts.items()}
    bound = "modules that import or define half of the public names"
    assert {n for n, c in counts.items() if c["lists of public names"]} == {
        "literal",
        "keys",
    }
    assert {n for n, c in counts.items() if c[bound]} == {"imports", "definitions"}


def test_participles_are_assignments_and_targets_of_loops() -> None:
    text = """
        found = told(1)
        for kept, other in found:
            self.made = kept
        def seen(given): ...
    """
    assert participles([module(text)]) == 2


@pytest.fixture(scope="module")
def checkout() -> Counts:
    """The counts of this checkout."""
    return static_counts(ROOT)


def test_this_checkout_is_counted(checkout: Counts) -> None:
    counts = checkout
    assert counts["modules"]["impls"] > 100
    assert counts["lines"]["harness"] > counts["statements"]["harness"] > 5000
    assert counts["lists of public names"]["impls"] >= 1
    assert set(counts["lists of public names"]) == {"impls"}


# -- the file and the page -------------------------------------------------------------

LAYOUT = Layout(
    {"lines": {"impls": 12000, "harness": 5}, "<b>": {"impls": 1}},
    {"LARC": {"tf": Calls(9, 3, 4)}, "graph": {"pytorch": Calls(1, 1, 0)}},
)


def test_the_file_gives_back_what_was_written(tmp_path: Path) -> None:
    path = write_layout(LAYOUT, tmp_path)
    first = path.read_bytes()
    assert read_layout(tmp_path) == LAYOUT
    write_layout(LAYOUT, tmp_path)
    assert path.read_bytes() == first
    assert read_layout(tmp_path / "nothing") is None


def test_the_page_shows_the_file_and_escapes_it(tmp_path: Path) -> None:
    write_layout(LAYOUT, tmp_path)
    inserts = layout_inserts(tmp_path)
    assert f">{number(12000)}<" in inserts["layout_counts"]
    assert "<b>" not in inserts["layout_counts"]
    assert "9 / 3 / 4" in inserts["layout_steps"]
    silent = layout_inserts(tmp_path / "nothing")
    assert all("Not measured yet" in text for text in silent.values())


def test_the_page_shows_goals_of_counts_and_steps_that_exist(
    checkout: Counts, tmp_path: Path
) -> None:
    assert set(COUNT_GOALS) <= set(checkout)
    published = read_layout(RESULTS)
    assert published is not None
    for step, goals in STEP_GOALS.items():
        assert set(goals) <= set(published.steps[step])
    inserts = layout_inserts(RESULTS)
    assert f">{number(COUNT_GOALS['lines'])}<" in inserts["layout_counts"]
    assert "pytorch 6 / 10" in inserts["layout_steps"]


def test_the_terminal_shows_both_tables() -> None:
    console = Console(record=True, width=120, file=None, quiet=False)
    with console.capture() as capture:
        LAYOUT.print(console)
    text = capture.get()
    assert "12000" in text and "9 / 3 / 4" in text and "pytorch" in text


def test_the_published_file_has_the_counts_of_this_code(checkout: Counts) -> None:
    published = json.loads((RESULTS / FILE).read_text("utf-8"))
    assert list(published["counts"]) == list(checkout)
    for backends in published["steps"].values():
        assert set(backends) <= set(BACKENDS)


def test_every_backend_has_steps() -> None:
    assert set(STEP_PARTS) == set(BACKENDS)


@pytest.mark.parametrize("name", [*SIZES, *REPETITION])
def test_every_count_is_defined_in_a_docstring(name: str) -> None:
    function = {**SIZES, **REPETITION}[name]
    assert function is len or function.__doc__
