"""Pages are a function of results: complete, stable, and whole or not at all."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.declarations import declare
from harness.figures import plot
from harness.judgement.finding import PREDICTIONS, Finding, age_of
from harness.pages.findings import Answered, Question, results_html
from harness.pages.parity import parity_inserts
from harness.pages.tables import Badge
from harness.pages.write import EXPERIMENTS, write_findings, write_pages
from harness.parity import drivers
from harness.parity.cases import GOLDEN, read_cases
from harness.parity.replay import replay
from harness.parity.row import Row
from harness.processes.children import ROOT
from harness.processes.environment import child_variables
from harness.records.record import Code, Outcome
from harness.tests.synthetic import record_of


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    """Four families, replayed on the reference."""
    families = ["base_optimizers", "multitask", "multitask_clip", "larc"]
    reference = drivers.load("reference")
    return [replay(case, reference)[0] for case in read_cases(GOLDEN, families)]


@pytest.fixture
def results(tmp_path: Path, rows: Sequence[Row]) -> Path:
    """A results folder with a parity report and nothing else."""
    folder = tmp_path / "results"
    write_report(folder, rows)
    return folder


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


def write_report(results: Path, rows: Sequence[Row]) -> None:
    (results / "parity").mkdir(parents=True, exist_ok=True)
    content = [row.as_json() for row in rows]
    (results / "parity" / "report.json").write_text(json.dumps(content), "utf-8")
    about = json.dumps({"python": "3.11.7"})
    (results / "parity" / "report.environment.json").write_text(about, "utf-8")


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


# -- the whole folder ----------------------------------------------------------------


ALONE = """
import sys
from pathlib import Path
from harness.pages.write import write_pages
write_pages(Path(sys.argv[1]), Path(sys.argv[2]))
print(*{'torch', 'tensorflow', 'keras'} & set(sys.modules))
"""


@pytest.mark.slow
def test_the_same_results_give_the_same_bytes_and_import_no_framework(
    docs: Path, results: Path, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "results" / "larc", results / "larc")
    alone = tmp_path / "alone"
    alone.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", ALONE, alone, results],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**child_variables(), "PYTHONPATH": f"{ROOT / 'impls'}"},
        check=True,
    )
    assert done.stdout.split() == []
    first = contents(alone / "generated")
    assert any(name.startswith("experiments/larc/") for name in first)
    written = write_pages(docs, results)
    assert contents(docs / "generated") == first
    assert len(written) == len(first)
    assert all(path.is_file() for path in written)
    assert write_pages(docs, results) == []


def test_without_results_every_page_says_so(docs: Path, tmp_path: Path) -> None:
    write_pages(docs, tmp_path / "nothing")
    pages = contents(docs / "generated")
    expected = {
        "experiments/absent_tasks.md",
        "experiments/index.md",
        "benchmarks/index.md",
        "benchmarks/multitask_overhead.md",
        "benchmarks/row_clipping.md",
        "inserts/parity_matrix.md",
        "inserts/cost_multitask_overhead.md",
        "inserts/home_experiments.md",
        "inserts/home_parity.md",
    }
    silent = [name for name in expected if b"easured yet" not in pages[name]]
    assert silent == []


def test_a_stale_page_disappears(docs: Path, results: Path) -> None:
    (docs / "generated").mkdir()
    (docs / "generated" / "stale.md").write_text("old", "utf-8")
    write_pages(docs, results)
    assert not (docs / "generated" / "stale.md").exists()


def test_a_damaged_report_leaves_the_old_pages(docs: Path, results: Path) -> None:
    write_pages(docs, results)
    before = contents(docs)
    (results / "parity" / "report.json").write_text("[{", "utf-8")
    with pytest.raises(json.JSONDecodeError):
        write_pages(docs, results)
    assert contents(docs) == before


# -- parity --------------------------------------------------------------------------


def test_the_matrix_counts_what_the_report_says(
    results: Path, rows: Sequence[Row]
) -> None:
    matrix = parity_inserts(results)["parity_matrix"]
    clip = [row for row in rows if row.family == "multitask_clip"]
    passed = sum(row.status == "passed" for row in clip)
    assert f">{passed} of {len(clip)}<" in matrix
    larc = sum(row.family == "larc" for row in rows)
    assert f">{larc} of {larc}<" in matrix


def test_a_cell_counts_the_ways_in_which_cases_are_right(
    results: Path, rows: Sequence[Row]
) -> None:
    listed = {"difference": "larc-sparse", "max_ulp": 0.5}
    larc = [row for row in rows if row.family == "larc"]
    other = replace(larc[0], against="reference", **listed)
    refused = replace(larc[1], against="refusal", difference="clip-limit")
    write_report(results, [other, refused, *larc[2:]])
    matrix = parity_inserts(results)["parity_matrix"]
    for count, way in (
        (len(larc) - 2, "as the original"),
        (1, "as documented"),
        (1, "refused alike"),
    ):
        assert f"{count} {way}" in matrix


def test_a_failure_shows_wherever_its_case_does(
    results: Path, rows: Sequence[Row]
) -> None:
    wrong = replace(rows[0], status="failed", reason="broken <here>", max_ulp=123.0)
    write_report(results, [wrong, *rows[1:]])
    inserts = parity_inserts(results)
    assert "1 failed" in inserts["parity_matrix"]
    assert "1 failed" in inserts["home_parity"]
    assert "broken &lt;here&gt;" in inserts["parity_reasons"]


# -- findings ------------------------------------------------------------------------


@dataclass
class Picture:
    """A figure that is only named."""

    name: str
    alt: str
    caption: str
    size: tuple[int, int] = (720, 360)


FINDING = Finding(
    experiment="absent_tasks",
    task="multitask_digits",
    title="Absent tasks",
    question="What do they do?",
    answer="They move it.",
    verdict="reproduced",
    tables={"how far": pd.DataFrame({"p": [1.0, 0.5], "x": [1.0, float("nan")]})},
    small_print=["Two seeds."],
    notices=["Judged late."],
    missing=["tf: 3 of 5 runs."],
    provenance={"scale": "quick", "subjects": [{"backend": "tf", "torch": None}]},
)


def draw(finding: Finding, folder: Path) -> Sequence[plot.Figure]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "drawn.light.svg").write_text(finding.answer, "utf-8")
    return [Picture("drawn", "A [line]\nthat rises", "Read it so.")]


@pytest.fixture
def published(tmp_path: Path) -> Iterator[Path]:
    """Results in which the experiment has a folder."""
    folder = tmp_path / "results" / "absent_tasks"
    folder.mkdir(parents=True)
    yield folder.parent
    shutil.rmtree(folder.parent)


def page_of(finding: Finding, folder: Path, results: Path) -> str:
    def compare(question: Question, root: Path) -> Finding:
        return finding

    asked = declare.find(finding.experiment)
    source = replace(EXPERIMENTS, questions=lambda: [asked], compare=compare)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plot, "draw", draw)
        write_findings(folder, source, results)
    return (folder / "experiments" / "absent_tasks.md").read_text("utf-8")


def test_a_users_own_run_stands_beside_the_published_one(
    tmp_path: Path, published: Path
) -> None:
    own = replace(FINDING, answer="Here too.")
    folder = tmp_path / "generated"
    page = page_of(replace(FINDING, local=own), folder, published)
    assert "**Your own run.** Here too." in page
    assert 'src="absent_tasks/own/drawn.light.svg#only-light"' in page
    drawn = folder / "experiments" / "absent_tasks" / "own" / "drawn.light.svg"
    assert drawn.read_text("utf-8") == "Here too."


def test_a_run_without_a_published_one_says_whose_it_is(tmp_path: Path) -> None:
    page = page_of(FINDING, tmp_path / "generated", tmp_path / "results")
    assert "No results are published yet" in page


def test_a_page_says_when_its_records_were_made_and_that_the_code_has_changed(
    tmp_path: Path, published: Path
) -> None:
    run = declare.find("absent_tasks").runs("quick")[0]
    made = replace(record_of(run, "tf", Outcome("ok")), start="2026-01-02T03:04:05Z")
    age = age_of([replace(made, code=Code("c0ffee00" * 5, False, "0" * 16))])
    page = page_of(replace(FINDING, age=age), tmp_path / "generated", published)
    said = "Measured 2026-01-02, last with Lockstep 0, commit c0ffee00."
    assert f"{said} The code has changed since." in page


def test_what_is_missing_in_a_table_sorts_last_and_shows_a_dash(
    tmp_path: Path, published: Path
) -> None:
    page = page_of(FINDING, tmp_path / "generated", published)
    assert re.search('data-sort=""[^>]*>–</td>', page)


SIGNS = ("<script", "<img src", "](javascript", "{ on", "--8<--", "$x", '" onm')
"""What would be markup if it stood on a page; figures have an ``alt`` before it."""

# -- texts that others wrote -----------------------------------------------------------

HOSTILE = {
    "a tag": "<script>hacked = 1</script>",
    "a handler": '<img src=x onerror="hacked = 1">',
    "a link": "[x](javascript:hacked=1)",
    "attributes": "x { onclick=hacked=1 }",
    "a snippet": '--8<-- "README.md"',
    "a formula": r"$x$ and \(y\)",
    "a block": "  !!! note\n\n    - [ ] x\n# y\n```\nz\n```",
    "a reference": "&lt;b&gt; &#60;",
    "an attribute's end": '" onmouseover="hacked=1',
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_text_in_any_field_stays_a_text(
    text: str, tmp_path: Path, published: Path
) -> None:
    sick = Finding(
        experiment="absent_tasks",
        task="multitask_digits",
        title=text,
        question=text,
        answer=text,
        verdict=text,
        tables={text: pd.DataFrame({text: [text]})},
        small_print=[text],
        missing=[text],
        notices=[text],
        provenance={text: text, "subjects": [{"backend": text}]},
    )
    # Tables are HTML, which is not read as Markdown; a browser looks at them.
    page, usual = (
        re.sub(r"<div class=.ls-table.*?</table>", "", of, flags=re.DOTALL)
        for of in (
            page_of(sick, tmp_path / "generated", published),
            page_of(FINDING, tmp_path / "generated", published),
        )
    )
    for sign in SIGNS:
        if sign in text:
            assert sign not in page, sign
    # No text opens a line of its own: there are as many headings and blocks as ever.
    for start in ("#", "!!!", "```", "- ["):
        assert starting(page, start) == starting(usual, start), start


ROW = {
    **dict.fromkeys(("comparison", "claim", "metric", "unit", "arm", "against"), "x"),
    **{"backend": "tf", "judged": True, "effect": "log ratio", "because": "y"},
    **{"predicted_low": 0.0, "predicted_high": float("inf"), "estimate": np.log(1.25)},
    **{"low": np.log(1.125), "high": np.log(1.5), "p": 1e-5, "outcome": "confirmed"},
    **{"pairs": 7, "diverged": 0, "unread": 0, "margin": 0.0, "control": False},
}
"""A comparison as ``harness.judgement.verdicts`` writes it."""


def with_row(**changes: object) -> Finding:
    frame = pd.DataFrame([{**ROW, **changes}])
    return replace(FINDING, tables={PREDICTIONS: frame, **FINDING.tables})


def test_predictions_that_are_not_judged_are_more_than_measured() -> None:
    question = declare.find(FINDING.experiment)
    predicted = replace(with_row(outcome="not judged"), verdict="")
    assert Answered(question, predicted, True).badges == [Badge("not judged")]
    drawn = Answered(question, replace(FINDING, verdict=""), True)
    assert drawn.badges == [Badge("measured")]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_texts_of_predictions_stay_texts(text: str) -> None:
    names = ("comparison", "claim", "metric", "unit", "arm", "against", "because")
    html = results_html(with_row(**dict.fromkeys(names, text), outcome=text))
    assert "<script" not in html and "<img" not in html and '" onm' not in html
    assert "\n#" not in html and "\n```" not in html


def starting(page: str, start: str) -> int:
    return sum(line.lstrip().startswith(start) for line in page.splitlines())
