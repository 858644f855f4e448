"""Markup in experiments and records is shown as plain text."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.declarations import declare
from harness.pages.findings import thumbnails
from harness.pages.sources import EXPERIMENTS
from harness.pages.write import write_findings
from harness.processes.children import ROOT
from harness.records.files import folder
from harness.site_tests.conftest import load, served
from harness.tests.makers import made_up

pytestmark = pytest.mark.browser

PAYLOADS = {
    "title": "<script>hacked=1</script> { onclick=hacked=1 } [x](javascript:hacked=1)",
    "question": '--8<-- "README.md" <img src=x onerror=hacked=1> $a$ `b` *c* &lt;',
    "because": '"><svg onload=hacked=1> [x](javascript:hacked=1) --8<-- "README.md"',
    "reason": '<script>hacked=1</script>\n\n!!! note\n    x\n\n--8<-- "README.md"',
    "device": "<img src=x onerror=hacked=1>",
    "label": "<img src=x onerror=hacked=1>",
}
"""Field -> payload; a label has at most 30 characters."""

NAME = "larc"
ALIVE = """() => [...document.querySelectorAll("*")].filter(e =>
    [...e.attributes].some(a => /^on/.test(a.name) || /^javascript:/.test(a.value)))
    .map(e => e.outerHTML)"""


def hostile_experiment(home: Path) -> declare.Experiment:
    """Write a copy of an experiment's declaration with a payload in each text."""
    text = (declare.EXPERIMENTS / f"{NAME}.toml").read_text("utf-8")
    lines = []
    for line in text.splitlines():
        key = line.partition(" = ")[0]
        known = key in PAYLOADS
        lines.append(f"{key} = {json.dumps(PAYLOADS[key])}" if known else line)
    path = home / f"{NAME}.toml"
    label = json.dumps(PAYLOADS["label"])
    path.write_text("\n".join(lines).replace('"LARC scale"', label), "utf-8")
    return declare.read(path)


def write_records(experiment: declare.Experiment, root: Path) -> None:
    """Write successful runs, and a failed one with a reason."""
    rng = np.random.default_rng(0)
    path = folder(experiment.name, False, root) / "pytorch.jsonl"
    path.parent.mkdir(parents=True)
    records = [made_up(run, "pytorch", rng) for run in experiment.runs("quick")]
    subject = {**records[0].subject, "device": PAYLOADS["device"]}
    of = {"status": "diverged", "reason": PAYLOADS["reason"], "subject": subject}
    records += [dataclasses.replace(records[0], **of)]
    lines = [json.dumps(record.as_json()) + "\n" for record in records]
    path.write_text("".join(lines), "utf-8")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site with our settings and one hostile experiment."""
    pytest.importorskip("mkdocs", reason="MkDocs is installed with the site only")
    home = tmp_path_factory.mktemp("hostile")
    experiment = hostile_experiment(home)
    write_records(experiment, home)
    source = dataclasses.replace(EXPERIMENTS, questions=lambda: [experiment])
    answers = write_findings(home / "docs", source, home)
    cards = thumbnails(answers, "experiments/", with_answers=True)
    (home / "docs" / "index.md").write_text(f"# Home\n\n{cards}", "utf-8")
    settings = {
        "INHERIT": str(ROOT / "mkdocs.yml"),
        "docs_dir": str(home / "docs"),
        "site_dir": str(home / "site"),
        "plugins": ["search"],
        "hooks": [],
        "nav": ["index.md", "experiments/index.md", f"experiments/{NAME}.md"],
        "extra": {"polyfills": []},
        "extra_css": [],
        "extra_javascript": [],
        "theme": {"logo": None, "favicon": None},
    }
    (home / "mkdocs.yml").write_text(json.dumps(settings), "utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-f", home / "mkdocs.yml"]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return home / "site"


@pytest.fixture(scope="module")
def hostile_address(built: Path) -> Iterator[str]:
    """Serve the hostile site."""
    with served(built) as url:
        yield url


@pytest.mark.parametrize(
    ("page", "fields"),
    [
        ("index.html", ["question"]),
        ("experiments/index.html", ["title", "question"]),
        (f"experiments/{NAME}.html", ["title", "question", "because", "label"]),
    ],
)
def test_no_text_of_others_comes_to_life(
    page: str, fields: list[str], browser: Any, hostile_address: str
) -> None:
    opened = browser.new_page()
    load(opened, hostile_address + page)
    assert opened.evaluate("window.hacked") is None
    assert opened.evaluate(ALIVE) == []
    shown = " ".join(opened.locator("article").inner_text().split())
    hidden = " ".join(opened.locator("article").text_content().split())
    for field in fields:
        text = " ".join(PAYLOADS[field].split())
        assert text in (shown if field in ("title", "question") else hidden), field
    # A line of the README, which an included snippet would show.
    assert "TensorFlow 2 dropped" not in hidden
    if "label" in fields:
        reason = " ".join(PAYLOADS["reason"].split())
        assert reason in hidden and PAYLOADS["device"] in hidden
    opened.close()


def test_the_search_shows_a_hostile_title_as_a_text(
    browser: Any, hostile_address: str
) -> None:
    opened = browser.new_page()
    opened.goto(hostile_address)
    field = opened.get_by_role("textbox", name="Search")
    field.click()
    # The search splits at spaces, so this is part of a word of the title.
    field.press_sequentially("onclick")
    opened.locator(".md-search-result__link").first.wait_for()
    assert opened.evaluate("window.hacked") is None
    assert opened.evaluate(ALIVE) == []
    opened.close()
