"""Runs that are not declared do not count."""

from __future__ import annotations

from pathlib import Path

from harness.declarations import declare
from harness.judgement.compare import counted_records
from harness.records.files import Store
from harness.records.record import Outcome
from harness.tests.synthetic import record_of

EXPERIMENT = declare.find("absent_tasks")


def publish(home: Path) -> None:
    """Write the records of three arms."""
    with Store(home, "tf") as store:
        for run in EXPERIMENT.runs("quick")[:3]:
            store.append(record_of(run, "tf", Outcome("ok")))


def test_what_is_no_longer_declared_does_not_count(tmp_path: Path) -> None:
    publish(tmp_path)
    assert len(counted_records(EXPERIMENT, tmp_path)) == 3
    fewer = {name: values[:1] for name, values in EXPERIMENT.vary.items()}
    declared = EXPERIMENT.model_copy(update={"vary": fewer})
    first = EXPERIMENT.runs("quick")[0].id
    assert [r.id for r in counted_records(declared, tmp_path)] == [first]
