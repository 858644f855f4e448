"""docs/records.md and the code have the same keys: a key that one lacks fails here."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.processes.children import ROOT
from harness.processes.environment import describe
from harness.records.code import Sources
from harness.records.record import KEYS, STATUSES, Code, Record, digest
from harness.records.store import Store
from harness.records.verified import COMPARISONS, Verification

PAGE = (ROOT / "docs" / "records.md").read_text("utf-8")
SECTIONS = {
    found[1]: part
    for part in re.split(r"^(?=## )", PAGE, flags=re.M)
    if (found := re.search(r"\A## .*\{ #(\w+) \}", part))
}
NOT_OPENED = ("config", "subject", "series", "summary", "modules", "packages")
"""Tables whose keys are data."""


def documented(section: str) -> dict[str, tuple[str, str]]:
    """Return type and meaning of each key in the table of a section."""
    rows = re.findall(r"^\| `(\S+)` \| (.+?) \| (.+) \|$", SECTIONS[section], re.M)
    assert len(rows) == len({key for key, *_ in rows})
    return {key: (kind, meaning) for key, kind, meaning in rows}


def keys_of(content: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the keys of a line, those of tables inside it as well."""
    for key, value in content.items():
        yield f"{above}{key}"
        if isinstance(value, Mapping) and key not in NOT_OPENED:
            yield from keys_of(value, f"{above}{key}.")


def written(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Return a line of each file, as it is written."""
    run = {"experiment": "e", "task": "t", "config": {}, "seed": 0}
    with Store(tmp_path, "tf") as store:
        environment = store.environment(describe("torch", "cpu"))
        code = Code(None, None, store.code({"lockstep.norms": "0" * 16}))
        subject = {"backend": "tf", "device": "cpu"}
        rest = (subject, environment, "ok", "", {}, {})
        order = ("experiment", "id", "task", "config", "seed")
        values = [{"id": digest(run, 12), **run}[name] for name in order]
        made = Record(*values, *rest, code=code, scale="std", command="")
        store.append(replace(made, process=0, start="", duration=1.0))
        store.verify(Verification("0", "cpu", code, "", 0, "", "bits", ""))
    names = {"record": "", "environment": ".environments"}
    names |= {"code": ".code", "verified": ".verified"}
    return {
        section: json.loads((tmp_path / f"tf{name}.jsonl").read_text("utf-8"))
        for section, name in names.items()
    }


@pytest.mark.parametrize("section", ["record", "environment", "code", "verified"])
def test_the_page_has_every_key_and_no_other(section: str, tmp_path: Path) -> None:
    found = set(keys_of(written(tmp_path)[section]))
    if section == "verified":
        found = {key for key in found if not key.startswith("code.")}
    assert set(documented(section)) == found
    assert all(meaning.endswith(".") for _, meaning in documented(section).values())


def test_the_keys_of_a_record_stand_in_their_order() -> None:
    outer = [key for key in documented("record") if "." not in key]
    assert tuple(outer) == KEYS
    fields = {field.name for field in dataclasses.fields(Record)}
    assert fields | {"schema"} == set(KEYS)


def test_the_page_names_every_status_comparison_and_section() -> None:
    assert all(
        f"`{status}`" in documented("record")["status"][1] for status in STATUSES
    )
    assert all(text in documented("verified")["comparison"][1] for text in COMPARISONS)
    linked = set(re.findall(r"\]\(#(\w+)\)", PAGE))
    assert linked <= SECTIONS.keys()


def test_the_page_tells_the_digits_of_every_digest(tmp_path: Path) -> None:
    lines = written(tmp_path)
    digits = {
        "record": {"environment": 8, "code.digest": 16},
        "environment": {"id": 8},
        "code": {"id": 16},
    }
    for section, keys in digits.items():
        for key, count in keys.items():
            value: Any = lines[section]
            for name in key.split("."):
                value = value[name]
            assert len(value) == count
            assert documented(section)[key][0] == f"text, {count} digits"
    assert len(Sources().digest("lockstep.registry") or "") == 16
