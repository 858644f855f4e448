"""The ledger: every claim names what there is, and no verdict is typed by hand."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from harness.bench import declare as benchmarks
from harness.declarations import declare
from harness.errors import HarnessError
from harness.judgement.claims import Claim, answer, read_claims
from harness.judgement.compare import compare
from harness.judgement.finding import Finding
from harness.pages.claims import claims_page
from harness.pages.findings import Answered
from harness.parity.cases import GOLDEN, array, read_cases
from lockstep.reference import clip_by_global_norm

CLAIMS = {claim.name: claim for claim in read_claims()}


@pytest.fixture(scope="module")
def finding() -> Finding:
    """What the published records of one experiment lead to."""
    compared = compare(declare.find("link_prediction"))
    assert compared is not None
    return compared


def test_every_judged_experiment_is_among_the_claims_and_no_name_is_there_twice() -> (
    None
):
    assert set(declare.known()) <= {claim.experiment for claim in CLAIMS.values()}
    assert len(CLAIMS) == len(read_claims())


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)
def test_a_claim_names_what_there_is(claim: Claim) -> None:
    assert sum(map(bool, (claim.experiment, claim.benchmark, claim.page))) <= 1
    assert claim.test or claim.page or claim.note
    if claim.experiment:
        known = {primary.name for primary in declare.find(claim.experiment).primaries}
        assert claim.primaries and {*claim.primaries} <= known
    if claim.benchmark:
        rows = benchmarks.find(claim.benchmark).rows
        assert claim.peer in {row.peer for row in rows if row.measure == "ratio"}


def test_a_claim_without_results_says_why() -> None:
    transe = CLAIMS["transe"]
    untested = transe.model_copy(update={"experiment": "", "note": "Nothing yet."})
    assert answer(untested, None) == ("not tested", [])
    assert answer(transe, None) == ("not measured yet", [])
    shown = transe.model_copy(update={"experiment": "", "page": "multitask.md"})
    assert answer(shown, None) == ("illustration", [])


def row_of(page: str, claim: Claim) -> str:
    return page.partition(f'id="{claim.name}"')[2].partition("</article>")[0]


def test_the_claim_about_norms_follows_from_recorded_cases() -> None:
    """The original's norm has the bits of the norm without tensors of zeros."""
    equal = []
    for case in read_cases(GOLDEN, ["multitask_clip"]):
        if "raises" in case.expected or case.inputs.get("dtype") == "float16":
            continue
        lists, results = [case.inputs["gradients"]], [case.expected]
        if "steps" in case.expected:
            lists, results = case.inputs["gradients"], case.expected["steps"]
        for values, expected in zip(lists, results, strict=True):
            present = [array(value, "float32") for value in values if value is not None]
            nonzero = [gradient for gradient in present if gradient.any()]
            norm = array(expected["global_norm"], "float32")
            if np.isfinite(norm) and norm > 0 and len(nonzero) < len(present):
                _, stock = clip_by_global_norm(nonzero, float(case.inputs["clip_norm"]))
                equal.append(stock == norm)
    claim = CLAIMS["underestimated-norm"]
    assert all(equal) and answer(claim, None) == ("not reproduced", [])
    assert f"For {len(equal)} of {len(equal)} recorded lists" in claim.note


RATIOS = {
    "reproduced": [(1.1, 1.2), (1.01, 1.3)],
    "not reproduced": [(0.8, 0.9), (0.8, 0.9)],
    "partly": [(1.1, 1.2), (0.9, 1.2)],
    "undecided": [(0.9, 1.2), (0.9, 1.2)],
}


def timed(
    finding: Finding, intervals: list[tuple[float, float]], processes: int = 6
) -> Finding:
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
    return dataclasses.replace(finding, tables={"rows": pd.DataFrame(rows)})


@pytest.mark.parametrize(("verdict", "intervals"), RATIOS.items(), ids=RATIOS)
def test_ratios_of_a_benchmark_answer_a_claim_about_time(
    verdict: str, intervals: list[tuple[float, float]], finding: Finding
) -> None:
    (claim,) = [each for each in CLAIMS.values() if each.benchmark]
    got, rows = answer(claim, timed(finding, intervals))
    assert (got, [row["backend"] for row in rows]) == (verdict, ["b0", "b1"])
    unmeasured = timed(finding, intervals, processes=5)
    assert answer(claim, unmeasured) == ("not measured yet", [])
    question = benchmarks.find(claim.benchmark)
    page = claims_page([Answered(question, timed(finding, intervals), True)])
    assert "b0, 20 tensors" in row_of(page, claim)


def test_the_page_shows_the_verdict_of_published_runs_alone(finding: Finding) -> None:
    claim, experiment = CLAIMS["transe"], declare.find("link_prediction")
    published, own = (
        row_of(claims_page([Answered(experiment, finding, each)]), claim)
        for each in (True, False)
    )
    assert f">{answer(claim, finding)[0]}</span>" in published
    assert ">not measured yet</span>" in own


def test_a_damaged_claim_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "claims.toml"
    text = declare.CLAIMS.read_text("utf-8")
    path.write_text(text.replace('of = "source"', 'of = "sources"', 1), "utf-8")
    with pytest.raises(HarnessError, match=r"^claims.toml: .* 'source'\?$"):
        read_claims(path)
