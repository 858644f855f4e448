"""What pages say of the live originals is what the report says."""

from __future__ import annotations

from pathlib import Path

from harness.dropin.declared import find
from harness.oracle.report import CaseRow, ProgramRow, Report, write_report
from harness.pages.parity.oracles import oracle_inserts

SAME = CaseRow("a-0", "a", "k", "tensorflow", "identical", compared=1234)
LISTED = CaseRow(
    "a-1", "a", "k", "tensorflow", "listed", compared=2, ulp=1.5, reason="the processor"
)
ABSENT = CaseRow("b-0", "b", "k", "open_seq2seq", "not live")
FAR = ProgramRow("cluster", "identical", 11, 1.0)


def inserts_of(folder: Path, *programs: ProgramRow) -> dict[str, str]:
    report = Report({"tensorflow": "1.15.5"}, [SAME, LISTED, ABSENT], list(programs))
    write_report(report, folder / "oracle/report.json")
    return oracle_inserts(folder)


def test_without_a_report_the_pages_say_how_to_make_one(tmp_path: Path) -> None:
    inserts = oracle_inserts(tmp_path)
    for name in ("summary", "families", "programs"):
        assert "nox -s oracle" in inserts[f"oracle_{name}"]


def test_the_summary_counts_live_cases_only(tmp_path: Path) -> None:
    text = inserts_of(tmp_path)["oracle_summary"]
    assert "Of 2 recorded cases of TensorFlow 1.15, 1 came out the same" in text
    assert "1236 recorded quantities" in text
    assert "1 are listed, at most 1.5 ULP apart: the processor." in text
    assert "tensorflow 1.15.5" in text


def test_a_family_that_is_not_live_has_no_distance(tmp_path: Path) -> None:
    text = inserts_of(tmp_path)["oracle_families"]
    first, second = text.split("<tbody>")[1].split("</tr>")[:2]
    assert "1.5 ULP" in first
    assert "–" in second


def test_a_program_that_is_apart_says_how_far_and_why(tmp_path: Path) -> None:
    text = inserts_of(tmp_path, FAR)["oracle_programs"]
    assert "1 ULP" in text
    assert find("cluster").reason in text
    broken = ProgramRow("cluster", "different", 11, 99.0, reason="on Lockstep: line 4")
    text = inserts_of(tmp_path, broken)["oracle_programs"]
    assert "on Lockstep: line 4" in text
    assert 'class="num bad"' in text


def test_the_table_of_imports_needs_no_report(tmp_path: Path) -> None:
    text = oracle_inserts(tmp_path)["oracle_imports"]
    assert "from lockstep.tf.strict import NAME" in text
