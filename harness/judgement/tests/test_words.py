"""The words of experiments fit their records, and say what the ledger says."""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from pathlib import Path

import pytest

from harness.declarations import declare
from harness.judgement.claims import answer, claims_of
from harness.judgement.compare import compare, front_matter, with_words
from harness.judgement.finding import PREDICTIONS, Finding
from harness.pages.findings import Answered, finding_page

TEXTS = sorted(declare.EXPERIMENTS.glob("*.md"))
NAMES = [path.stem for path in TEXTS]

WITH_DIGITS = r"\b(?:[Ff]loat16|float32|bfloat16|TF32|beta2|Keras 3|TensorFlow 1)\b"
"""Names that have digits; every other digit must come from a record."""


@cache
def finding_of(name: str) -> Finding:
    finding = compare(declare.find(name))
    assert finding is not None
    return finding


@pytest.mark.parametrize("path", TEXTS, ids=NAMES)
def test_no_number_is_typed(path: Path) -> None:
    _, text = front_matter(path)
    filled_in = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", text, flags=re.DOTALL)
    assert not re.findall(r"\S*\d\S*", re.sub(WITH_DIGITS, "", filled_in))


@pytest.mark.parametrize("name", NAMES)
def test_words_page_and_ledger_have_the_same_verdicts(name: str) -> None:
    finding = finding_of(name)
    ledger = {claim.name: answer(claim, finding)[0] for claim in claims_of(name)}
    head, _ = front_matter(declare.EXPERIMENTS / f"{name}.md")
    assert {claim: head.get(claim) for claim in ledger} == ledger
    page = finding_page(Answered(declare.find(name), finding, True), {})
    badges = re.findall(r'<p class="ls-verdict"><span [^>]*>(.*?)</span>', page)
    assert badges == list(ledger.values())


@pytest.mark.parametrize("name", NAMES)
def test_words_fit_the_published_records(name: str) -> None:
    assert not [line for line in finding_of(name).notices if "do not fit" in line]


def test_runs_of_other_arms_get_a_default_answer_and_a_note() -> None:
    finding = finding_of("novograd")
    table = finding.tables[PREDICTIONS].iloc[:1]
    other = dataclasses.replace(finding, tables={PREDICTIONS: table}, notices=[])
    answered = with_words(other, declare.find("novograd"), [])
    assert answered.answer == "Predictions: 1 confirmed."
    (note,) = answered.notices
    assert note.startswith("The words of novograd.md do not fit these runs: ")
