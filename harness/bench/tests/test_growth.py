"""Exponents of the lines of a benchmark are those that the times were made with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from harness.bench.compare import Measured, compare, measured
from harness.bench.declare import Benchmark, find
from harness.bench.growth import exponents, sentence_on
from harness.records.files import folder
from harness.tests.benched import write_times

CLIPPING = find("row_clipping")


def made(
    root: Path, seconds: Callable[[float, int], float], benchmark: Benchmark = CLIPPING
) -> Measured:
    """Return records in which a point x takes so many seconds in a process."""
    write_times(benchmark, root, {})
    records = measured(benchmark, folder(benchmark.name, True, root))
    places = {
        (row.backend, row.setup_id): row.x for row in benchmark.rows if row.growth
    }
    return {
        key: [
            replace(
                record,
                series={"ours": [seconds(places[key] or 1, record.process or 0)]},
            )
            for record in records[key]
        ]
        for key in places
    }


def test_an_exponent_is_that_of_the_law_and_its_interval_that_of_the_processes(
    tmp_path: Path,
) -> None:
    steeper = {k: 0.5 + 0.01 * (k % 2) for k in range(6)}
    records = made(tmp_path, lambda x, process: 3e-6 * x ** steeper[process])
    table = exponents(CLIPPING, records)
    assert table["backend"].tolist() == ["pytorch", "tf"]
    assert table["exponent"].tolist() == pytest.approx([0.505] * 2)
    # Student's t for 5 degrees of freedom is 2.571; s is 0.005477.
    half = 2.571 * 0.005477 / 6**0.5
    assert table["high"].tolist() == pytest.approx([0.505 + half] * 2, abs=1e-5)
    assert (table["from"].tolist(), table["to"].tolist()) == ([1e4] * 2, [4e6, 1e6])


def test_a_process_that_lacks_a_point_does_not_count(tmp_path: Path) -> None:
    records = {**made(tmp_path, lambda x, process: x)}
    first = next(key for key in records if key[0] == "tf")
    records[first] = [r for r in records[first] if r.process != 2]
    assert exponents(CLIPPING, records)["processes"].tolist() == [6, 5]
    records[first] = records[first][:1]
    assert exponents(CLIPPING, records)["backend"].tolist() == ["pytorch"]


def test_a_line_with_zero_or_with_close_points_has_no_exponent(tmp_path: Path) -> None:
    benchmark = find("multitask_overhead")
    write_times(benchmark, tmp_path, {})
    finding = compare(benchmark, tmp_path)
    assert finding is not None
    shown = finding.tables["exponents"]["growth"].tolist()
    assert shown == ["parameters", "tensors"]


def test_the_sentence_names_every_line_and_is_empty_without_one(tmp_path: Path) -> None:
    said = sentence_on(exponents(CLIPPING, made(tmp_path, lambda x, process: x)))
    assert "1.00 [1.00, 1.00] over rows of the table on tf." in said
    assert sentence_on(pd.DataFrame()) == ""
