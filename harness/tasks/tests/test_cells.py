"""Cells: runs that differ in their seed alone, and pairs of them by seed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from harness.records.record import Record
from harness.tasks.cells import Cell, by_config, cells, over_time, paired


@dataclass(frozen=True)
class Measured:
    """Settings of runs that are measured three times."""

    measured_at: tuple[int, ...] = (0, 1, 2)


def record(
    seed: int, *losses: float, backend: str = "tf", device: str = "cpu", width: int = 8
) -> Record:
    """A record with a series and nothing else."""
    return Record(
        experiment="made_up",
        id="0",
        task="made_up",
        config={"width": width},
        seed=seed,
        subject={"backend": backend, "device": device},
        environment="0",
        status="ok",
        reason="",
        series={"loss": losses},
        summary={},
    )


def cell(backend: str, *records: Record) -> Cell:
    return Cell(backend, Measured(), records, {})


def test_what_differs_in_the_seed_alone_is_one_group_in_order_of_seeds() -> None:
    records = [record(1), record(0), record(0, width=9), record(0, device="cuda")]
    seeds = [[one.seed for one in group] for group in by_config(records)]
    assert sorted(seeds) == [[0], [0], [0, 1]]


def test_cells_of_the_same_name_show_the_setting_in_which_they_differ() -> None:
    def labels(*widths: int) -> list[object]:
        records = [record(0, width=width) for width in widths]
        found = cells(records, lambda width: Measured(), lambda of: {"method": "a"})
        return [dict(cell.labels) for cell in found]

    same = {"method": "a", "backend": "tf"}
    assert labels(8) == [same]
    assert labels(8, 9) == [{**same, "width": 8}, {**same, "width": 9}]


def test_a_run_that_diverged_goes_on_at_the_worst() -> None:
    made = cell("tf", record(0, 3, 2, 1), record(1, 3, np.nan))
    assert made.column("loss").tolist() == [[3, 2, 1], [3, np.inf, np.inf]]
    assert made.column("loss", 0.0)[1].tolist() == [3, 0, 0]
    assert np.isnan(made.last("loss")).all()


def test_only_seeds_that_both_have_are_paired() -> None:
    a, b = cell("tf", record(0), record(1)), cell("pytorch", record(1), record(2))
    assert [[r.seed for r in each.records] for each in paired(a, b)] == [[1], [1]]


def test_seconds_are_parts_of_the_durations_on_a_quiet_machine() -> None:
    runs = [
        replace(record(seed, 4, 2, 1), duration=seconds, load=load)
        for seed, (seconds, load) in enumerate([(6.0, 1.0), (8.0, 2.0), (90.0, 9.0)])
    ]
    made = cell("tf", *runs), cell("pytorch", record(0, 4, 2, 1))
    table = over_time(made, "loss", lambda cell: cell.column("loss"))
    assert table["seconds"].tolist() == [0, 3.5, 7]
    assert table["loss"].tolist() == [4, 2, 1]
