"""Who cites or publishes gets the version and the checks that the checkout has."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from harness.processes.children import ROOT
from lockstep import __version__

yaml = pytest.importorskip("yaml", reason="PyYAML has no wheel for this Python")

ACTION = re.compile(r"actions/[\w-]+@v\d+")
ARCHIVES = ROOT / "harness" / "composition" / "archives"


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def test_the_citation_names_the_version_and_day_of_the_last_release() -> None:
    citation = read(ROOT / "CITATION.cff")
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert citation["version"] == __version__
    assert f"## [{__version__}] - {citation['date-released']}\n" in changes


def test_the_citation_has_what_its_schema_requires_and_no_address() -> None:
    citation = read(ROOT / "CITATION.cff")
    required = {"cff-version", "message", "title", "authors"}
    assert required <= citation.keys()
    assert (citation["cff-version"], citation["type"]) == ("1.2.0", "software")
    # There is no public address yet.
    assert not {"url", "repository", "repository-code"} & citation.keys()


def test_the_workflow_runs_every_check_and_publishes_the_site_that_it_built() -> None:
    workflow = read(ROOT / ".github" / "workflows" / "site.yml")
    check, publish = workflow["jobs"]["check"], workflow["jobs"]["publish"]
    assert [step["run"] for step in check["steps"] if "run" in step] == [".ci/run"]
    assert check["steps"][-1]["with"]["path"] == read_site_folder()
    assert publish["needs"] == "check"
    used = [s["uses"] for job in (check, publish) for s in job["steps"] if "uses" in s]
    assert used and all(ACTION.fullmatch(action) for action in used)
    # Only the job that publishes may write.
    assert workflow["permissions"] == {"contents": "read"}


def read_site_folder() -> str:
    """Return where MkDocs builds the site; its file has tags that PyYAML refuses."""
    text = (ROOT / "mkdocs.yml").read_text("utf-8")
    (folder,) = re.findall(r"^site_dir: (\w+)$", text, re.MULTILINE)
    return str(folder)


def test_the_upgrade_notes_name_every_release_whose_checkpoints_load() -> None:
    page = (ROOT / "docs" / "upgrade.md").read_text("utf-8")
    releases = sorted(path.name for path in ARCHIVES.iterdir() if path.is_dir())
    assert releases
    assert f"Checkpoints of {' and '.join(releases)} load" in page
