"""A damaged file stops nothing else; runs that are not declared do not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.commands.measurements import everything
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


@pytest.mark.parametrize("line", ["{]", '{"id": "x"}', '{"id": "x", "schema": 1}'])
def test_the_list_goes_on_after_a_file_that_cannot_be_read(
    line: str, tmp_path: Path
) -> None:
    publish(tmp_path / "absent_tasks")
    publish(tmp_path / "local" / "absent_tasks")
    with (tmp_path / "absent_tasks" / "tf.jsonl").open("a") as file:
        file.write(line + "\n")
    listed = everything(tmp_path)["experiments"]
    (entry,) = (each for each in listed if each["name"] == "absent_tasks")
    assert entry["published"]["records"] is None
    assert "tf.jsonl, line 4: expected" in entry["published"]["problem"]
    assert entry["local"] == {"records": 3}
    assert all(e is entry or e["published"]["records"] == 0 for e in listed)


def test_what_is_no_longer_declared_does_not_count(tmp_path: Path) -> None:
    publish(tmp_path)
    assert len(counted_records(EXPERIMENT, tmp_path)) == 3
    fewer = {name: values[:1] for name, values in EXPERIMENT.vary.items()}
    declared = EXPERIMENT.model_copy(update={"vary": fewer})
    first = EXPERIMENT.runs("quick")[0].id
    assert [r.id for r in counted_records(declared, tmp_path)] == [first]
