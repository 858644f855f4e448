"""The pages of the API reference: every public name is on one page of its backend."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

import lockstep
from harness.errors import HarnessError
from harness.pages.findings.sources import BENCHMARKS, EXPERIMENTS
from harness.pages.hooks.navigation import FOLDERS, further_pages, with_pages
from harness.pages.library.reference import (
    HUBS,
    RETURNED,
    public_names,
    reference_inserts,
    reference_pages,
)
from lockstep.interface import EXPORTS
from lockstep.registry import BACKENDS

IMPLS = Path(lockstep.__file__).parent
PAGES = reference_pages(IMPLS)


@pytest.mark.parametrize(("backend", "folder"), list(RETURNED))
def test_a_class_that_users_do_not_import_is_where_its_page_says(
    backend: str, folder: str
) -> None:
    for name in RETURNED[backend, folder]:
        module, _, kind = name.rpartition(".")
        path = (IMPLS / backend / module.replace(".", "/")).with_suffix(".py")
        assert re.search(rf"^class {kind}\b", path.read_text("utf-8"), re.MULTILINE)


def test_every_backend_has_a_page_of_its_own() -> None:
    assert set(HUBS) == set(BACKENDS)


@pytest.mark.parametrize("backend", HUBS)
def test_every_public_name_is_on_one_page(backend: str) -> None:
    text = "\n".join(page for path, page in PAGES.items() if path.startswith(backend))
    shown = re.findall(rf"^::: lockstep\.{backend}\.(\w+)$", text, re.M)
    shown += re.findall(r"^`(\w+)` is `tf\.", text, re.M)
    assert len(shown) == len(set(shown))
    assert set(EXPORTS) <= set(shown)


@pytest.mark.parametrize("export", EXPORTS)
def test_a_shared_name_is_on_the_page_of_the_same_capability(export: str) -> None:
    pages = {
        name.capability
        for names in public_names(IMPLS).values()
        for name in names
        if name.name == export
    }
    assert len(pages) == 1


def test_the_navigation_has_exactly_the_pages_that_are_written() -> None:
    entries = with_pages([f"generated/reference/{backend}/" for backend in HUBS])
    files = [file for entry in entries for file in entry.values()]
    assert files == [f"generated/reference/{path}" for path in PAGES]


def test_the_navigation_names_every_folder_and_no_page_in_it() -> None:
    nav = (IMPLS.parents[1] / "mkdocs.yml").read_text("utf-8")
    assert set(re.findall(r"- (generated/\S+/)\n", nav)) == set(FOLDERS)
    assert not [f for f in FOLDERS if re.search(rf"{f}(?!index\b)\w", nav)]


def test_a_page_about_a_wrapper_needs_no_entry(tmp_path: Path) -> None:
    for name, heading in {"rows": "Row clipping", "columns": "Columns"}.items():
        path = tmp_path / "clipping" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"---\nhide: [toc]\n---\n# {heading}\n\n## Rule\n")
    nav = ["index.md", {"Wrappers": [{"Rows": "clipping/rows.md"}, "*/", "end.md"]}]
    found = with_pages(nav, further_pages(nav, tmp_path))[1]["Wrappers"]
    columns = {"Columns": "clipping/columns.md"}
    assert found == [{"Rows": "clipping/rows.md"}, columns, "end.md"]


@pytest.mark.parametrize("folder", ["experiments", "benchmarks"])
def test_every_question_has_its_entry_in_the_navigation(folder: str) -> None:
    source = {"experiments": EXPERIMENTS, "benchmarks": BENCHMARKS}[folder]
    (section,) = with_pages([{"A section": ["a.md", f"generated/{folder}/"]}])
    assert section["A section"] == [
        "a.md",
        *({q.title: f"generated/{folder}/{q.name}.md"} for q in source.questions()),
    ]


@pytest.mark.parametrize("backend", HUBS)
def test_a_backends_page_keeps_the_anchors_of_its_names(backend: str) -> None:
    table = reference_inserts(IMPLS)[f"reference_{backend}"]
    for name in public_names(IMPLS)[backend]:
        anchor = f"{{ #lockstep.{backend}.{name.name} }}"
        assert (anchor in table) == (name.framework is None)


def test_a_name_without_a_capability_is_a_sentence(tmp_path: Path) -> None:
    for backend in HUBS:
        (tmp_path / backend).mkdir()
        shutil.copy(IMPLS / backend / "__init__.py", tmp_path / backend)
    file = tmp_path / "pytorch" / "__init__.py"
    text = file.read_text("utf-8").replace(
        "pytorch.schedules.lr_scheduler", "pytorch.new.x"
    )
    file.write_text(text, "utf-8")
    with pytest.raises(HarnessError, match="an import of PolicyLR from the folder"):
        public_names(tmp_path)
