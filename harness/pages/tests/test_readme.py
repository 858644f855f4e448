"""The README: its examples run, and its commands are those that CI runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.bench import compare as bench
from harness.bench import declare as benchmarks
from harness.errors import HarnessError
from harness.pages.readme import (
    ASSETS,
    DOCS,
    with_files,
    write_figure,
    write_illustrations,
)
from harness.processes.children import ROOT
from harness.tests.script_process import Request
from harness.tests.shared_processes import UNCHANGED, Processes
from lockstep import registry

README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def framework_of(example: str) -> str:
    names = ("torch", "tensorflow", "keras")
    return next(name for name in names if f"import {name}" in example)


@pytest.mark.parametrize("example", EXAMPLES, ids=framework_of)
def test_an_example_runs_and_prints(
    example: str, processes: Processes, tmp_path: Path
) -> None:
    backends = {"torch": "pytorch", "tensorflow": "tf", "keras": "keras3"}
    backend = backends[framework_of(example)]
    if not registry.installed(backend):
        pytest.skip(f"{framework_of(example)} is not installed")
    script = tmp_path / "example.py"
    script.write_text(example, "utf-8")
    (group,) = [group for group in UNCHANGED if framework_of(example) in group.split()]
    printed = processes.output_of(group, group.split(), Request(str(script)))
    assert printed.strip()


def test_ci_runs_the_command_that_the_readme_gives() -> None:
    (command,) = re.findall(r"^python3 .*nox -s tests$", README, re.MULTILINE)
    assert command in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.parametrize(
    ("name", "what", "said"),
    [
        ("loss_scaling", "fused Adam, 23M parameters", "{:.2f} times as long"),
        ("small_steps", "multitask", "adds {:.0f} µs"),
    ],
)
def test_a_cost_is_that_of_the_published_records(
    name: str, what: str, said: str
) -> None:
    finding = bench.compare(benchmarks.find(name))
    assert finding is not None
    rows = finding.tables["rows"]
    value = rows[rows["what"] == what]["value"].iloc[0]
    assert said.format(value) in " ".join(README.split())


def test_pages_show_scripts_and_outputs_as_they_are() -> None:
    pages = [path.read_text("utf-8") for path in DOCS.rglob("*.md")]
    assert sum("<!-- examples/" in page for page in pages) > 10
    changed = [page[:40] for page in pages if with_files(page) != page]
    assert changed == [], "run python -m harness pages --docs"


def test_a_page_gets_the_text_of_a_changed_script() -> None:
    script = (DOCS / "examples" / "port.out").read_text("utf-8").strip()
    page = "one\n\n  <!-- examples/port.out -->\n  ```text\n  old\n  ```\n\ntwo\n"
    fence = "\n".join(f"  {line}" if line else "" for line in script.splitlines())
    assert with_files(page) == page.replace("  old", fence)


@pytest.mark.sample(1)
@pytest.mark.parametrize("write", [write_figure, write_illustrations])
def test_the_committed_figures_are_those_that_are_drawn(
    write: Callable[[Path], list[Path]], tmp_path: Path
) -> None:
    for fresh in write(tmp_path):
        committed = (ASSETS / fresh.name).read_text("utf-8")
        words, numbers = parts_of(fresh.read_text("utf-8"))
        committed_words, committed_numbers = parts_of(committed)
        assert words == committed_words, "run python -m harness pages --docs"
        # In points: another processor may round the last digits of a law otherwise.
        assert numbers == pytest.approx(committed_numbers, abs=0.01)


def test_a_figure_is_not_drawn_from_a_readers_own_runs(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match=r"expected published results, got none"):
        write_figure(tmp_path, results=tmp_path)
    assert not list(tmp_path.iterdir())


def parts_of(svg: str) -> tuple[list[str], list[float]]:
    """Return what stands around the numbers of a drawing, and the numbers."""
    number = r"\s*-?(?:\d*\.\d+|\d+)"
    return re.split(number, svg), [float(each) for each in re.findall(number, svg)]
