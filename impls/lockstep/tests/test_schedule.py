"""The command ``lockstep``: it draws policies without a framework or a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lockstep import __version__, cli, schedule
from lockstep.errors import LockstepError
from lockstep.reference import lr_policies

POLY = ["learning_rate=0.1", "decay_steps=1000", "warmup_steps=100"]
IMPLS = Path(schedule.__file__).parent.parent


def drawn(policy: str, *words: str, steps: int | None = None) -> schedule.Schedule:
    return schedule.schedule(policy, schedule.parse(words), steps, strict=False)


def test_the_terminal_shows_the_call_and_the_curve(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli.main(["schedule", "poly_decay", *POLY])
    shown = capsys.readouterr().out
    assert "poly_decay(learning_rate=0.1, decay_steps=1000" in shown
    assert "first 0, largest 0.09, last 0" in shown
    assert "█" in shown


@pytest.mark.parametrize("width", [16, 40, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = schedule.as_text(drawn("fixed_lr", "learning_rate=0", steps=500), width)
    lines = text.splitlines()[1:-2]
    assert lines and all(len(line) <= width for line in lines)


def test_every_file_is_written_and_the_csv_holds_the_rates(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    files = schedule.write_files(drawn("poly_decay", *POLY), tmp_path / "new")
    names = [path.name.removeprefix("poly_decay.") for path in files]
    assert names == ["svg", "pdf", "csv"]
    step, rate = np.loadtxt(files[-1], delimiter=",", skiprows=1).T
    expected = lr_policies.poly_decay(550, 0.1, 1000, warmup_steps=100)
    assert step[550] == 550
    # The file holds six digits.
    assert rate[550] == pytest.approx(float(expected), rel=1e-5)
    first = [path.read_bytes() for path in files]
    schedule.write_files(drawn("poly_decay", *POLY), tmp_path / "new")
    assert [path.read_bytes() for path in files] == first


def test_without_matplotlib_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit) as ended:
        cli.main(["schedule", "poly_decay", *POLY, "--out", str(tmp_path)])
    assert ended.value.code == 2
    assert "pip install matplotlib" in capsys.readouterr().err


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
        ("poly_decay", ["a=1", "a=2"], None, "expected a once, got it twice"),
        ("fixed_lr", ["learning_rate=1e400"], None, "a finite rate >= 0, got inf"),
        ("poly_decay", ["learning_rate=1e60", "decay_steps=4"], 5, "got inf at step 0"),
        (
            "exp_decay",
            [
                "learning_rate=1",
                "decay_steps=1",
                "decay_rate=2",
                "use_staircase_decay=True",
            ],
            200,
            "exp_decay: expected rates that are finite in float32, got inf at step 128",
        ),
        (
            "exp_decay",
            ["use_staircase_decay=true"],
            None,
            "use_staircase_decay: expected True or False, got true; write "
            "use_staircase_decay=True",
        ),
    ],
)
def test_what_cannot_be_drawn_is_one_sentence(
    policy: str, words: list[str], steps: int | None, said: str
) -> None:
    with pytest.raises(LockstepError, match=said) as refused:
        drawn(policy, *words, steps=steps)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("steps", ["many", "0", "nan"])
def test_arguments_that_strict_does_not_check_are_one_sentence(steps: str) -> None:
    arguments = schedule.parse(["learning_rate=0.1", f"decay_steps={steps}"])
    with pytest.raises(LockstepError, match="poly_decay: expected"):
        schedule.schedule("poly_decay", arguments, 5, strict=True)


def test_a_file_in_the_way_is_one_sentence(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(LockstepError, match="--out: expected a folder to write into"):
        schedule.write_files(drawn("poly_decay", *POLY), tmp_path / "file")


def test_versions_of_what_is_installed_and_of_what_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_version", {"torch": "9.9"}.get)
    cli.main(["version"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"lockstep {__version__}"
    assert {"torch 9.9", "keras not installed"} <= set(lines)


def test_nothing_but_numpy_is_needed(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "names = ('torch', 'tensorflow', 'keras', 'harness', 'pandas', 'rich', 'typer',"
        " 'matplotlib')\n"
        "sys.modules.update(dict.fromkeys(names))\n"
        "from lockstep.cli import main\n"
        f"main(['schedule', 'poly_decay', *{POLY!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": str(IMPLS), "PYTHONIOENCODING": "utf-8"},
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    assert "largest 0.09" in done.stdout
