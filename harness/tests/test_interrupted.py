"""What the command line says after Ctrl-C."""

from __future__ import annotations

import sys

import pytest

from harness import cli


@pytest.mark.parametrize("ended", [KeyboardInterrupt(), SystemExit(130)])
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("parity", "harness: interrupted.\n"),
        ("bench", "harness: interrupted.\n"),
        (
            "run",
            "harness: interrupted; what is done is kept, and the same command goes "
            "on.\n",
        ),
    ],
)
def test_one_line_says_that_and_whether_the_work_is_kept(
    ended: BaseException,
    command: str,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted() -> None:
        raise ended

    monkeypatch.setattr(cli, "app", interrupted)
    monkeypatch.setattr(sys, "argv", ["harness", command])
    with pytest.raises(SystemExit) as error:
        cli.main()
    assert error.value.code == 130
    assert capsys.readouterr().err == words
