"""A user's own optimizer: what its file must have, and the whole way to a figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.declarations.declare import find
from harness.errors import HarnessError
from harness.figures.plot import draw
from harness.judgement.compare import compare
from harness.runs.run import Request, sweep
from harness.tasks import own

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
LION = f"{EXAMPLES / 'lion_pytorch.py'}:make"


def file(folder: Path, text: str) -> str:
    path = folder / "mine.py"
    path.write_text(text, "utf-8")
    return f"{path}:make"


def test_settings_have_a_name_and_the_digest_of_the_text(tmp_path: Path) -> None:
    place = file(tmp_path, "def make(p, learning_rate): ...\n")
    first = own.described({"file": place, "beta": 0.5})
    assert (first["name"], first["beta"]) == ("mine.py:make", 0.5)
    place = file(tmp_path, "def make(p, learning_rate): return p\n")
    assert own.described({"file": place, "beta": 0.5})["text"] != first["text"]
    assert own.described(first) == first, "a record's file may have changed"


def test_a_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(HarnessError, match="expected a file and a function"):
        find("absent_tasks").with_optimizer(f"{tmp_path / 'none.py'}:make")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def made(p, learning_rate): ...\n", "did you mean 'made'"),
        ("def make(p, learning_rate:\n", "that can be imported, got SyntaxError"),
        ("import nosuch\ndef make(p, learning_rate): ...\n", "ModuleNotFoundError"),
        ("def make(p, learning_rate): return 3\n", "expected an optimizer of torch"),
        ("def make(p, learning_rate): raise ValueError('why')\n", "ValueError: why"),
        ("def make(p): ...\n", "unexpected keyword"),
    ],
)
def test_a_function_that_makes_no_optimizer_is_one_sentence(
    text: str, sentence: str, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    settings = own.described({"file": file(tmp_path, text), "learning_rate": 0.1})
    with pytest.raises(HarnessError, match=sentence):
        own.make(settings, [torch.nn.Parameter(torch.ones(2))], torch.optim.Optimizer)


def test_a_file_that_changed_since_its_runs_were_declared_is_refused(
    tmp_path: Path,
) -> None:
    settings = own.described({"file": file(tmp_path, "def make(p, lr): ...\n")})
    file(tmp_path, "def make(p, lr): return p\n")
    with pytest.raises(HarnessError, match="the text that the runs were declared with"):
        own.make(settings, [], object)


def test_an_experiment_without_named_optimizers_lists_those_that_have_them() -> None:
    with pytest.raises(HarnessError, match="expected one of absent_genres"):
        find("larc").with_optimizer(LION)


@pytest.mark.slow
def test_an_own_optimizer_is_trained_judged_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    experiment = find("absent_tasks").with_optimizer(LION, ["pytorch"])
    (report,) = sweep([experiment], Request("quick", ["pytorch"], root=tmp_path))
    assert not report.failed
    finding = compare(find("absent_tasks"), tmp_path, experiment)
    assert finding is not None
    of = finding.local or finding
    rows = of.tables["comparison"]
    assert "lion_pytorch.py:make" in set(rows["optimizer"])
    figures = draw(of, tmp_path / "plots")
    assert figures and all(path.exists() for f in figures for path in f.files)
