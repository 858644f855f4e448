"""The files of benchmarks: what they declare, and errors that name their keys."""

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
        (setup,) = benchmark.setups("pytorch", scale)
        assert list(setup.variants) == expected


ROW = 'backend = "pytorch"\nsetup = { model'
PEER = 'peer = "bare"\ntwice = true\nwhat = "four'
WHAT = 'what = "four'


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('title = "Smoke"', 'titel = "Smoke"', "titel: .*did you mean 'title'"),
        ('title = "Smoke"', "title = 3", "title: Input .* string, got 3"),
        (PEER, 'peer = "bear"\n' + WHAT, r"row\[0\].peer: .*did you mean 'bare'"),
        (PEER, WHAT, "peer: expected one of bare, got ''"),
        (PEER, 'measure = "speed"\n' + PEER, "measure: .*ratio"),
        (PEER, 'measure = "time"\n' + PEER, "peer: expected no peer"),
        (ROW, 'backend = "torch"\nsetup = { model', "backend: .*keras3"),
        ('zeros = "half"', "zeros = 2", "setup.zeros: Input .* string"),
        (WHAT, 'goal = "low"\n' + WHAT, "goal: Input .* number, got"),
        (WHAT, "gaol = 1.0\n" + WHAT, "did you mean 'goal'"),
    ],
)
def test_an_error_names_the_key_and_what_is_allowed(
    old: str, new: str, words: str, tmp_path: Path
) -> None:
    assert old in GOOD
    path = tmp_path / "smoke.toml"
    path.write_text(GOOD.replace(old, new, 1), "utf-8")
    with pytest.raises(HarnessError, match=rf"smoke.toml: .*{words}"):
        read(path)
