"""The files of benchmarks: what they declare, and errors that name their lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.bench.declare import read
from harness.errors import HarnessError

GOOD = """
question = "Does it run?"
title = "Smoke"
task = "multitask_overhead"
answer = "It takes {}"
peers = { bare = "the bare optimizer" }
rounds = { quick = 2, std = 3 }

[[row]]
backend = "pytorch"
setup = { model = "smoke", zeros = "half" }
peer = "bare"
twice = true
what = "four small tensors"
"""


def test_a_control_is_a_row_of_the_setup_of_its_peer(tmp_path: Path) -> None:
    path = tmp_path / "smoke.toml"
    path.write_text(GOOD, "utf-8")
    benchmark = read(path)
    assert len(benchmark.rows) == 2
    for scale, expected in (
        ("std", ["ours", "bare", "bare again"]),
        ("quick", ["ours", "bare"]),
    ):
        (setup,) = benchmark.setups("pytorch", scale).values()
        assert setup.variants == expected


ROW = 'backend = "pytorch"\nsetup = { model'
PEER = 'peer = "bare"\ntwice = true\nwhat = "four'
WHAT = 'what = "four'


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('title = "Smoke"', 'titel = "Smoke"', 3, "did you mean 'title'"),
        ('title = "Smoke"', "title = 3", 3, "title: expected a string, got 3"),
        ("{ quick = 2, std = 3 }", "{ quick = 2 }", 7, "rounds.std: expected a key"),
        ("quick = 2", "quick = 0", 7, "rounds.quick: expected a number greater than 0"),
        (PEER, 'peer = "bear"\n' + WHAT, 12, "did you mean 'bare'"),
        (PEER, WHAT, 9, r"row\[0\].peer: expected one of bare, got ''"),
        (PEER, 'measure = "speed"\n' + PEER, 12, "measure: .*ratio"),
        (PEER, 'measure = "time"\n' + PEER, 13, "peer: expected no peer"),
        (ROW, 'backend = "torch"\nsetup = { model', 10, "backend: .*keras3"),
        ('zeros = "half"', "zeros = 2", 11, "setup.zeros: expected a string"),
        (WHAT, 'goal = "low"\n' + WHAT, 13, "goal: expected a number, got"),
        (WHAT, "gaol = 1.0\n" + WHAT, 13, "did you mean 'goal'"),
    ],
)
def test_an_error_names_the_line_the_key_and_what_is_allowed(
    old: str, new: str, line: int, words: str, tmp_path: Path
) -> None:
    assert old in GOOD
    path = tmp_path / "smoke.toml"
    path.write_text(GOOD.replace(old, new, 1), "utf-8")
    with pytest.raises(HarnessError, match=rf"smoke.toml, line {line}: .*{words}"):
        read(path)
