"""The pages of the API reference: every public name is on one page of its backend."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lockstep
from harness.pages.reference import (
    HUBS,
    RETURNED,
    public_names,
    reference_pages,
)
from lockstep.interface import EXPORTS
from lockstep.pipeline import WRAPPERS
from lockstep.tests.original_signatures import SIGNATURES

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


@pytest.mark.parametrize("backend", HUBS)
def test_every_public_name_is_on_one_page(backend: str) -> None:
    text = "\n".join(page for path, page in PAGES.items() if path.startswith(backend))
    shown = re.findall(rf"^::: lockstep\.{backend}\.(?:\w+\.)*(\w+)$", text, re.M)
    shown += re.findall(r"^`(\w+)` is `tf\.", text, re.M)
    assert len(shown) == len(set(shown))
    # A wrapper of ours may begin on one backend.
    assert set(EXPORTS) - (set(WRAPPERS) - set(SIGNATURES)) <= set(shown)


@pytest.mark.parametrize("export", EXPORTS)
def test_a_shared_name_is_on_the_page_of_the_same_capability(export: str) -> None:
    pages = {
        name.capability
        for names in public_names(IMPLS).values()
        for name in names
        if name.name == export
    }
    assert len(pages) == 1
