"""Scripts that share a process, and scripts that are alone in a fork of one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.tests.script_process import Request
from harness.tests.shared_processes import Processes

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only there a process is forked"
)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.end()


@pytest.fixture
def printed(processes: Processes, tmp_path: Path) -> Run:
    """What a script prints, in a process that imports `json` when it starts."""

    def run(text: str, *arguments: str, alone: bool = True) -> str:
        path = tmp_path / "script.py"
        path.write_text(text, "utf-8")
        request = Request(str(path), arguments, str(tmp_path), alone=alone)
        kind = "alone" if alone else "together"
        return processes.output_of(kind, ["json"], request)

    return run


CHANGED = """
import json, os, sys
print(hasattr(json, "changed"), sys.argv[1], os.path.basename(os.getcwd()), flush=True)
json.changed = True
"""


def test_a_script_that_is_alone_finds_nothing_of_others(
    printed: Run, tmp_path: Path
) -> None:
    for _ in range(2):
        text = CHANGED + "os.system('echo of a child')"
        lines = printed(text, "word").splitlines()
        assert lines == [f"False word {tmp_path.name}", "of a child"]
    assert [printed(CHANGED, "x", alone=False).split()[0] for _ in range(2)] == [
        "False",
        "True",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("import os; os._exit(3)", "status 3"),
        ("import os; os.kill(os.getpid(), 9)", "status -9"),
        ("import harness", "No module named 'harness'"),
        ("import atexit, os; atexit.register(os._exit, 4)", "status 4"),
    ],
)
def test_a_script_that_ends_badly_fails_its_test(
    printed: Run, text: str, reason: str
) -> None:
    with pytest.raises(pytest.fail.Exception, match=reason):
        printed(text)
    assert printed("print('the next one')") == "the next one\n"
