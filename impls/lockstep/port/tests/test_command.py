"""``lockstep port``: what it prints, which files it writes, and what it refuses."""

from __future__ import annotations

import stat
import subprocess
import sys
from codecs import BOM_UTF8
from pathlib import Path

import pytest

from lockstep import cli

pytest.importorskip("libcst", reason="libcst is not installed")

OLD = b"import tensorflow as tf\n"
NEW = b"import tensorflow.compat.v1 as tf\n\ntf.disable_v2_behavior()\n"


def run(*words: object) -> int:
    """Run the command; return its exit status."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["port", *map(str, words)])
    return int(ended.value.code or 0)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_bytes(OLD)
    return path


def test_without_options_it_reports_and_writes_nothing(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(program) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{program}:1: import tensorflow as tf -> import tensorflow.compat.v1 as tf; "
        "tf.disable_v2_behavior()",
        "1 of 1 file would change, 1 change, 0 names left to you. "
        "Nothing was written: --write does it.",
    ]
    assert program.read_bytes() == OLD


def test_check_is_status_1_until_the_file_is_written(program: Path) -> None:
    assert run(program, "--check") == 1
    assert program.read_bytes() == OLD
    assert run(program, "--write") == 0
    assert program.read_bytes() == NEW
    assert run(program, "--check") == 0


def test_names_that_are_left_do_not_fail_a_check(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_bytes(NEW + b"tf.layers.dense\n")
    assert run(program, "--check") == 0
    assert f"{program}:4: left to you: tf.layers: " in capsys.readouterr().out


def test_a_diff_can_be_applied(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.write_bytes(OLD + b"x = '\x0c'\ntf.layers.dense")
    assert run(program, "--diff") == 0
    shown = capsys.readouterr()
    assert "left to you" in shown.err and "left to you" not in shown.out
    patch = ["patch", str(program)]
    subprocess.run(patch, input=shown.out, text=True, check=True, capture_output=True)
    assert program.read_bytes() == NEW + b"x = '\x0c'\ntf.layers.dense"


def test_a_folder_is_ported_without_hidden_folders_and_environments(
    tmp_path: Path,
) -> None:
    for name in ("a.py", "b/c.py", ".git/d.py", "venv/e.py", "__pycache__/f.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(OLD)
    (tmp_path / "venv/pyvenv.cfg").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / ".git/d.py")
    (tmp_path / "notes.txt").write_bytes(OLD)
    assert run(tmp_path, "--write") == 0
    changed = [path for path in tmp_path.rglob("*.*") if path.is_file()]
    changed = [path for path in changed if path.read_bytes() == NEW]
    assert sorted(path.name for path in changed) == ["a.py", "c.py"]


def test_output_holds_every_program_and_the_folder_stays(tmp_path: Path) -> None:
    source, output = tmp_path / "old", tmp_path / "new"
    (source / "inner").mkdir(parents=True)
    (source / "inner/a.py").write_bytes(OLD)
    (source / "b.py").write_bytes(b"x = 1\n")
    assert run(source, "--output", output) == 0
    assert (output / "inner/a.py").read_bytes() == NEW
    assert (output / "b.py").read_bytes() == b"x = 1\n"
    assert (source / "inner/a.py").read_bytes() == OLD
    assert run(source / "inner/a.py", "--output", tmp_path / "a.py") == 0
    assert (tmp_path / "a.py").read_bytes() == NEW


def test_mode_mark_and_line_endings_are_kept(program: Path) -> None:
    program.write_bytes(BOM_UTF8 + OLD.replace(b"\n", b"\r\n"))
    program.chmod(0o750)
    assert run(program, "--write") == 0
    assert program.read_bytes() == BOM_UTF8 + NEW.replace(b"\n", b"\r\n")
    assert stat.S_IMODE(program.stat().st_mode) == 0o750


def test_a_link_that_is_named_is_ported_where_it_leads(program: Path) -> None:
    link = program.with_name("link.py")
    link.symlink_to(program)
    assert run(link, "--write") == 0
    assert link.is_symlink() and program.read_bytes() == NEW


def test_an_unchanged_file_is_not_written(program: Path) -> None:
    program.write_bytes(NEW)
    program.chmod(0o444)
    before = program.stat()
    assert run(program, "--write") == 0
    assert program.stat().st_ino == before.st_ino


REFUSED = {
    "missing.py": (None, "missing.py: expected a file or a folder, got none; check"),
    "empty": ("", "empty: expected Python files in the folder, got none; name"),
    "b.py": (OLD + b"\xff", "b.py:2: expected UTF-8, got the byte 0xff; save"),
    "c.py": (
        OLD + b"x = 1\nprint 'loss'\n",
        "c.py:3: expected Python 3, got \"print 'loss'\"; correct the line, or run",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_bad_input_is_one_sentence_and_status_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, sentence = REFUSED[name]
    path = tmp_path / name
    if isinstance(data, bytes):
        path.write_bytes(data)
    elif data is not None:
        path.mkdir()
    assert run(path, "--write") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert f"lockstep: {tmp_path}/{sentence}" in error
    assert not isinstance(data, bytes) or path.read_bytes() == data


def test_a_file_that_cannot_be_ported_does_not_stop_the_others(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.with_name("broken.py").write_bytes(OLD + b"print 1\n")
    assert run(program.parent, "--write") == 2
    assert program.read_bytes() == NEW
    assert "1 of 2 files changed" in capsys.readouterr().out


def test_a_read_only_file_is_not_replaced(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program.chmod(0o444)
    assert run(program, "--write") == 2
    assert "got a read-only one; run chmod u+w on it" in capsys.readouterr().err
    assert program.read_bytes() == OLD


def test_a_write_that_fails_leaves_the_file_and_nothing_else(
    program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert run(program, "--write") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert list(program.parent.iterdir()) == [program]
    assert program.read_bytes() == OLD


def test_an_output_that_exists_is_refused(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(program, "--output", program) == 2
    assert "--output: expected a path that does not exist yet" in (
        capsys.readouterr().err
    )
    assert program.read_bytes() == OLD


def test_without_libcst_the_extra_is_named(
    program: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "libcst", None)
    assert run(program) == 2
    assert capsys.readouterr().err == (
        "lockstep: lockstep port: expected libcst to be installed, got none; "
        "run pip install libcst.\n"
    )
