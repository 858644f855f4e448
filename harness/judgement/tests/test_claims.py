"""The ledger: every claim names what there is, and no verdict is typed by hand."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from harness.bench import declare as benchmarks
from harness.declarations import declare
from harness.errors import HarnessError
from harness.judgement.claims import Claim, answer, read_claims
from harness.judgement.compare import compare
from harness.judgement.finding import PREDICTIONS, Finding
from harness.judgement.norms import equal_without_zeros
from harness.pages.findings.claims import claims_page
from harness.pages.findings.page import Answered

TEXT = declare.CLAIMS.read_text("utf-8")
TEXTS = {"name": "a", "of": "source", "claim": "b", "source": "c", "figure": "d"}
VERDICTS = ("reproduced", "partly", "undecided", "confirmed", "refuted")


@pytest.fixture(scope="module")
def finding() -> Finding:
    """What the published records of one experiment lead to."""
    found = compare(declare.find("link_prediction"))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def transe() -> Claim:
    (claim,) = [each for each in read_claims() if each.name == "transe"]
    return claim


def test_the_claims_are_read_and_every_judged_experiment_is_among_them() -> None:
    named = {claim.experiment for claim in read_claims()}
    assert set(declare.known()) <= named
    assert "claims" not in declare.known()


def test_no_verdict_is_typed_by_hand() -> None:
    assert "verdict" not in Claim.model_fields
    for claim in read_claims():
        texts = (claim.claim, claim.source, claim.figure, claim.missing)
        assert not [w for w in VERDICTS for text in texts if w in text.lower()], claim


def test_a_claim_without_results_says_why(finding: Finding, transe: Claim) -> None:
    untested = Claim(**TEXTS, missing="Nothing yet.")
    assert answer(untested, None) == ("not tested", [])
    assert answer(transe, None) == ("not measured yet", [])
    shown = Claim(**TEXTS, page="multitask.md")
    assert answer(shown, None) == ("illustration", [])


def test_the_claim_about_norms_follows_from_recorded_cases() -> None:
    (claim,) = [each for each in read_claims() if each.cases]
    equal, count = equal_without_zeros()
    assert count > 0 and answer(claim, None) == ("not reproduced", [])
    row = claims_page([]).partition(f'id="{claim.name}"')[2].partition("</article>")[0]
    assert f"{equal} of {count}" in row


RATIOS = {
    "reproduced": [(1.1, 1.2), (1.01, 1.3)],
    "not reproduced": [(0.8, 0.9), (0.8, 0.9)],
    "partly": [(1.1, 1.2), (0.9, 1.2)],
    "undecided": [(0.9, 1.2), (0.9, 1.2)],
}


@cache
def finding_of_links() -> Finding:
    """Return the finding of an experiment; its tables are not changed."""
    finding = compare(declare.find("link_prediction"))
    assert finding is not None
    return finding


def timed(intervals: list[tuple[float, float]], processes: int = 6) -> Finding:
    """Return what a benchmark found: a ratio a backend, and rows of other kinds."""
    row = {"against": "the same with a fixed scale", "measure": "ratio", "unit": ""}
    row |= {"what": "20 tensors", "processes": processes, "control": False}
    rows = [
        {**row, "backend": f"b{k}", "value": (low + high) / 2, "low": low, "high": high}
        for k, (low, high) in enumerate(intervals)
    ]
    # These do not answer the claim.
    others = [{"control": True}, {"measure": "difference"}, {"against": "another"}]
    rows += [{**rows[0], "low": 9.0, "high": 9.0, **other} for other in others]
    tables = {"rows": pd.DataFrame(rows)}
    return dataclasses.replace(finding_of_links(), tables=tables)


@pytest.mark.parametrize(("verdict", "intervals"), RATIOS.items(), ids=RATIOS)
def test_ratios_of_a_benchmark_answer_a_claim_about_time(
    verdict: str, intervals: list[tuple[float, float]]
) -> None:
    (claim,) = [each for each in read_claims() if each.benchmark]
    found, rows = answer(claim, timed(intervals))
    assert (found, [row["backend"] for row in rows]) == (verdict, ["b0", "b1"])
    assert answer(claim, timed(intervals, processes=5)) == ("not measured yet", [])


def test_the_page_shows_ratios_with_what_is_predicted() -> None:
    question = benchmarks.find("loss_scaling")
    page = claims_page([Answered(question, timed(RATIOS["partly"]), True)])
    row = page.partition('id="dynamic-scale-cost"')[2].partition("</article>")[0]
    for part in ("b0, 20 tensors", "ratio 1.15 &#91;1.10, 1.20&#93;", "confirmed"):
        assert part in row
    assert "benchmarks/loss&#95;scaling.html" in row


def page_with(finding: Finding, published: bool = True) -> str:
    experiment = declare.find("link_prediction")
    return claims_page([Answered(experiment, finding, published)])


def test_the_page_shows_claim_figure_result_and_verdict(
    finding: Finding, transe: Claim
) -> None:
    row = page_with(finding).partition('id="transe"')[2].partition("</article>")[0]
    for part in ("TransE needs a limit", "contradictory", "difference"):
        assert part in row
    assert f">{answer(transe, finding)[0]}</span>" in row
    assert "experiments/link&#95;prediction.html" in row


def test_own_runs_of_a_reader_answer_no_claim(finding: Finding) -> None:
    row = (
        page_with(finding, False).partition('id="transe"')[2].partition("</article>")[0]
    )
    assert ">not measured yet</span>" in row


def test_texts_of_records_and_files_are_escaped(finding: Finding) -> None:
    hostile = "<script>x</script> [y](javascript:z)"
    frame = finding.tables[PREDICTIONS].assign(outcome=hostile)
    tables = {**finding.tables, PREDICTIONS: frame}
    page = page_with(dataclasses.replace(finding, tables=tables))
    assert "<script" not in page and "](javascript" not in page


DAMAGES = {
    "unknown key": ('figure = "none"', 'figur = "none"', "did you mean 'figure'?"),
    "whose": ('of = "source"', 'of = "sources"', "did you mean 'source'?"),
    "unknown experiment": ('"absent_tasks"', '"absent_task"', "mean 'absent_tasks'?"),
    "unknown comparison": ('"heads-adam"', '"heads-adan"', "mean 'heads-adam'?"),
    "experiment without comparisons": (
        'primaries = ["heads-adam", "heads-momentum"]',
        "primaries = []",
        "expected comparisons of absent_tasks",
    ),
    "unknown family": ('= "multitask_clip"', '= "multitask_clop"', "'multitask_clip'?"),
    "no reason": (
        'page = "schedules/policies.md#curves"',
        'misses = "No experiment"',
        "got 'misses'",
    ),
    "unknown benchmark": ('= "loss_scaling"', '= "loss_scalin"', "'loss_scaling'?"),
    "unknown peer": ('peer = "fixed"', 'peer = "fixt"', "did you mean 'fixed'?"),
    "no ratio": ("low = 1.0", "low = 0", "low: expected a number greater than 0"),
    "empty text": (
        'figure = "formulas"',
        'figure = ""',
        "figure: String should have",
    ),
    "a name twice": (
        '"skipping-hurts"',
        '"absent-tasks"',
        "that no claim above it has",
    ),
    "a verdict": ('of = "source"', 'of = "source"\nverdict = "x"', "got 'verdict'"),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_claim_is_one_sentence_that_names_the_line(
    tmp_path: Path, damage: tuple[str, str, str]
) -> None:
    old, new, expected = damage
    assert old in TEXT
    path = tmp_path / "claims.toml"
    path.write_text(TEXT.replace(old, new, 1), "utf-8")
    with pytest.raises(HarnessError) as raised:
        read_claims(path)
    message = str(raised.value)
    assert expected in message and "\n" not in message
    assert message.startswith("claims.toml, line ")
