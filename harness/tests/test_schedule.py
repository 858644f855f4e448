"""The command that draws a policy."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from typer.testing import CliRunner

from harness import schedule
from harness.cli import app
from harness.errors import HarnessError
from harness.processes import ROOT
from lockstep.reference import lr_policies
from lockstep.spec.errors import LockstepError

POLY = ["learning_rate=0.1", "decay_steps=1000", "warmup_steps=100"]


def drawn(policy: str, *words: str, steps: int | None = None) -> schedule.Schedule:
    return schedule.schedule(policy, schedule.parse(words), steps, strict=False)


def test_the_terminal_shows_the_call_and_the_curve() -> None:
    result = CliRunner().invoke(app, ["schedule", "poly_decay", *POLY])
    assert result.exit_code == 0
    assert "poly_decay(learning_rate=0.1, decay_steps=1000" in result.stdout
    assert "first 0, largest 0.09, last 0" in result.stdout
    assert "█" in result.stdout


@pytest.mark.parametrize("width", [16, 40, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    console = Console(width=width, record=True, file=io.StringIO())
    schedule.print_schedule(drawn("fixed_lr", "learning_rate=0", steps=500), console)
    lines = console.export_text().splitlines()[:-4]
    assert all(len(line) <= width for line in lines)


def test_every_file_is_written_and_the_csv_holds_the_rates(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    files = schedule.draw_schedule(drawn("poly_decay", *POLY), tmp_path / "new")
    names = [path.name.removeprefix("poly_decay.") for path in files]
    assert names == ["light.svg", "dark.svg", "pdf", "csv"]
    table = pd.read_csv(files[-1])
    expected = lr_policies.poly_decay(550, 0.1, 1000, warmup_steps=100)
    assert table["rate"][550] == pytest.approx(float(expected), rel=1e-5)
    first = files[0].read_bytes()
    schedule.draw_schedule(drawn("poly_decay", *POLY), tmp_path / "new")
    assert files[0].read_bytes() == first


def test_lists_and_words_are_read() -> None:
    words = ("learning_rate=1", "boundaries=[1, 3]", "decay_rates=[0.5,.25]")
    rates = drawn("piecewise_constant", *words, steps=5).rates
    assert rates.tolist() == [1.0, 1.0, 0.5, 0.5, 0.25]
    words = ("learning_rate=1", "d_model=4", "warmup_steps=3", "dtype=float16")
    assert drawn("transformer_policy", *words).rates.dtype == "float16"


@pytest.mark.parametrize(
    ("policy", "words", "steps", "said"),
    [
        ("pol_decay", POLY, None, "did you mean 'poly_decay'"),
        ("poly_decay", ["learning_rate=1", "decay_step=3"], None, "'decay_steps'"),
        ("poly_decay", ["learning_rate=1"], None, "add decay_steps"),
        ("poly_decay", ["1"], None, "expected NAME=VALUE, got '1'"),
        ("poly_decay", ["learning_rate=1", "decay_steps=many"], None, "got 'many'"),
        ("poly_decay", POLY, 0, "between 1 and 1000000 steps, got 0"),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    policy: str, words: list[str], steps: int | None, said: str
) -> None:
    with pytest.raises((HarnessError, LockstepError), match=said):
        drawn(policy, *words, steps=steps)


def test_a_file_in_the_way_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(HarnessError, match="--out: expected a folder to write into"):
        schedule.draw_schedule(drawn("poly_decay", *POLY), tmp_path / "file")


def test_no_framework_is_imported() -> None:
    arguments = ["schedule", "poly_decay", *POLY]
    script = (
        "import sys; from typer.testing import CliRunner; from harness.cli import app\n"
        f"assert CliRunner().invoke(app, {arguments!r}).exit_code == 0\n"
        "assert not {'torch', 'tensorflow', 'keras'} & set(sys.modules)"
    )
    command = [sys.executable, "-c", script]
    paths = {"PYTHONPATH": f"{ROOT}:{ROOT / 'impls'}"}
    done = subprocess.run(command, env=paths, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_argument_that_is_given_twice_is_refused() -> None:
    with pytest.raises(HarnessError, match="expected learning_rate once, got it twi"):
        schedule.parse(["learning_rate=.1", "learning_rate=.2"])
