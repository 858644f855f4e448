"""`harness plan`: quantities as people write them, and the plan that follows."""

from __future__ import annotations

import doctest
import json
import math
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.commands import cli, quantities
from harness.commands.quantities import bandwidth, duration, size
from harness.errors import HarnessError
from harness.simulator.planner import Setting, describe_band

USUAL = ("--step", "30ms", "--model", "91MB", "--bandwidth", "1Gbit")


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(cli.app, ["plan", *arguments])


def test_the_examples_of_quantities() -> None:
    assert doctest.testmod(quantities).failed == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30ms", 0.03), ("1.5 s", 1.5), ("2MIN", 120), ("1e3us", 1e-3)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert duration(text, "--step") == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "expected"), [("700kB", 7e5), ("1MiB", 2**20), ("1.4 gb", 1.4e9)]
)
def test_a_size_is_read(text: str, expected: float) -> None:
    assert size(text, "--model") == pytest.approx(expected)


def test_bits_and_bytes_a_second_differ_by_eight() -> None:
    one, other = (bandwidth(text, "--bandwidth") for text in ("8Gbit/s", "1GB/s"))
    assert one == pytest.approx(other) == pytest.approx(1e9)
    assert bandwidth("8Gbit", "--bandwidth") == one


@pytest.mark.parametrize("text", ["", "30", "ms", "3 0ms", "-1ms", "1..2ms", "1e999s"])
def test_what_is_no_duration_is_one_sentence(text: str) -> None:
    with pytest.raises(HarnessError, match=r"--step: expected .* write it as in 30ms"):
        duration(text, "--step")


def test_a_plan_is_that_of_the_planner() -> None:
    arguments = ("--workers", "8", "--period", "10", "--latency", "1ms")
    result = invoke(*USUAL, *arguments, "--center", "0.1s", "--json")
    assert result.exit_code == 0, result.output
    setting = Setting(0.03, 91e6, 125e6, 1e-3, 0.1)
    assert json.loads(result.stdout) == [pytest.approx(setting.row(10, 8))]


def test_a_plan_is_a_table_and_a_sentence_a_period() -> None:
    result = invoke(*USUAL)
    assert result.exit_code == 0, result.output
    rows = [line for line in result.stdout.splitlines() if line.startswith("│")]
    assert len(rows) == 3 * 6
    assert result.stdout.count("the busiest station is full from") == 3


def test_a_model_without_bytes_never_fills_a_station() -> None:
    free = ("--step", "1s", "--model", "0B", "--bandwidth", "1Gbit")
    assert "is full never" in invoke(*free).stdout
    rows = json.loads(invoke(*free, "--json").stdout)
    assert {row["knee"] for row in rows} == {None}


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (None, "on no network"),
        ((0.0, math.inf), "on every network"),
        ((0.0, 125e6), "up to 1 Gbit/s"),
        ((125e6, math.inf), "from 1 Gbit/s on"),
        ((2.5e6, 250e6), "from 20 Mbit/s to 2 Gbit/s"),
    ],
)
def test_a_band_is_written_by_the_ends_that_it_has(
    ends: tuple[float, float] | None, words: str
) -> None:
    assert describe_band(ends) == words


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (("--step", "0ms"), "step_seconds: expected a finite number > 0"),
        (("--bandwidth", "1Gb"), "--bandwidth: expected a number and one of kbit/s"),
        (("--workers", "0"), "--workers: expected whole numbers from 1 to 10000"),
        (("--period", "-1"), "--period: expected whole numbers from 1 to"),
    ],
)
def test_nonsense_is_one_sentence(changed: tuple[str, ...], told: str) -> None:
    error = invoke(*USUAL, *changed).exception
    assert isinstance(error, HarnessError)
    assert told in str(error) and "\n" not in str(error)
