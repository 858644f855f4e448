"""The plugin that compares the sentences of errors in a run of the tests."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.nets import sentences, snapshots
from harness.nets.sentences import Recorder, normalized, part_of
from lockstep import registry
from lockstep.messages.errors import OutOfRangeError, ShapeError

FILE = "impls/lockstep/reference/tests/test_steps.py"
FROZEN = {
    "reference": ["OutOfRangeError: rate: expected > N, got VALUE; give N."],
    "tf": ["other"],
}


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("got shape [2, 3]; use 1.5.", "got shape [4, 5, 6]; use 1e-3."),
        ("w, got tensor([[1., 2.],\n [3., 4.]]); give 1", "w, got None; give 2"),
        ("got <object at 0x7f00>", "got <object at 0x10ff>"),
        ("for 'variable'; build it", "for 'variable_98'; build it"),
        ("no 'sequential_3/dense_9/w'", "no 'sequential/dense_1/w'"),
        ("no file /tmp/a-1/b.json", "no file /home/x/c"),
        (
            "saved 'a' of shape [2] for 'b', got [7]; load what state_dict() returned",
            "saved 'c' of shape [3] for 'd', got None; load what state_dict() returned",
        ),
        (
            "state with which it fails (KeyError: f()); load what state_dict() made",
            "state with which it fails (ValueError: x); load what state_dict() made",
        ),
        (
            "of Adam, got one without a; load it up",
            "of Adam, got one with b; load it up",
        ),
    ],
)
def test_values_are_no_part_of_a_sentence(one: str, another: str) -> None:
    assert normalized(one) == normalized(another)


@pytest.mark.parametrize(
    ("one", "another"),
    [
        ("expected float32, got float16", "expected float32, got float64"),
        ("beta1: expected a number", "beta2: expected a number"),
        ("beta_1: expected a number", "beta_2: expected a number"),
        ("w, got None; give 1", "w, got nothing; give 1"),
        ("w, got 'x'; give a name", "w, got 'x'; pass a name"),
        ("did you mean 'tf'?", "did you mean 'torch'?"),
        ("a and/or b", "a and b"),
    ],
)
def test_words_are_part_of_a_sentence(one: str, another: str) -> None:
    assert normalized(one) != normalized(another)


def test_tests_belong_to_a_backend_to_none_or_to_another_package() -> None:
    root = Path("/checkout")
    assert part_of(root / FILE, root) == "reference"
    assert part_of(root / "impls/lockstep/tests/test_a.py", root) == sentences.SHARED
    assert part_of(root / "harness/tests/test_a.py", root) is None


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one test file, and FROZEN as its snapshot."""
    path = tmp_path / FILE
    path.parent.mkdir(parents=True)
    path.write_text("")
    monkeypatch.setattr(snapshots, "read", lambda name: FROZEN)
    monkeypatch.setattr(registry, "installed", lambda name: True)
    return tmp_path


def process(root: Path, *args: str, write: bool = False) -> Any:
    """Return the recorder of a controller of pytest-xdist, or of the only process."""
    config: Any = SimpleNamespace(rootpath=root, args=args, getoption=lambda _: write)
    return Recorder(config)


def worker(root: Path, file: str, *errors: Exception) -> Any:
    """Return what a process of pytest-xdist hands over after the tests of a file."""
    recorder = process(root)
    recorder.config.workeroutput = {}
    item: Any = SimpleNamespace(path=root / file)
    hook = recorder.pytest_runtest_protocol(item)
    next(hook)
    for error in errors:
        recorder.note(type(error), error.args)
    with pytest.raises(StopIteration):
        next(hook)
    recorder.note(ShapeError, ("made outside of a test",))
    recorder.pytest_sessionfinish(SimpleNamespace(), 0)
    return recorder.config


def finish(recorder: Recorder, status: int = 0) -> int:
    """End the run and return its exit status."""
    session: Any = SimpleNamespace(exitstatus=status)
    recorder.pytest_sessionfinish(session, status)
    return int(session.exitstatus)


KNOWN = OutOfRangeError("rate: expected > 0, got -1; give 2.")
REWORDED = OutOfRangeError("rate: expected > 0, got -1; pass 2.")
RAISED_AGAIN = OutOfRangeError("in user code: rate: expected > 0, got -1; give 2.")


def test_a_whole_run_with_the_frozen_sentences_passes(root: Path) -> None:
    recorder = process(root, "impls")
    recorder.pytest_testnodedown(worker(root, FILE, KNOWN, RAISED_AGAIN))
    assert (finish(recorder), recorder.lines) == (0, [])


def test_a_sentence_that_is_reworded_fails_a_whole_run(root: Path) -> None:
    recorder = process(root, "impls")
    recorder.pytest_testnodedown(worker(root, FILE, REWORDED))
    assert finish(recorder) == 1
    gone, new, remedy = recorder.lines
    assert (
        gone == "- reference: OutOfRangeError: rate: expected > N, got VALUE; give N."
    )
    assert new == "+ reference: OutOfRangeError: rate: expected > N, got VALUE; pass N."
    assert "python -m harness.nets write sentences" in remedy


def test_a_new_sentence_is_counted_and_passes(root: Path) -> None:
    recorder = process(root, "impls")
    recorder.pytest_testnodedown(worker(root, FILE, KNOWN, REWORDED))
    assert finish(recorder) == 0
    assert recorder.lines[0].startswith("1 are not in the snapshot")


def test_a_part_of_a_run_is_not_judged(root: Path) -> None:
    of_one_test = process(root, f"{FILE}::test_it")
    deselecting = process(root, "impls")
    deselecting.pytest_deselected([item_with("slow")])
    crashed = process(root, "impls")
    crashed.pytest_testnodedown(SimpleNamespace())
    failed = process(root, "impls")
    for recorder in (of_one_test, deselecting, crashed, failed):
        recorder.pytest_testnodedown(worker(root, FILE))
    assert [finish(r) for r in (of_one_test, deselecting, crashed)] == [0, 0, 0]
    assert finish(failed, 2) == 2
    without_the_file = process(root, "impls")
    assert finish(without_the_file) == 0


def item_with(marker: str) -> Any:
    """Return a test that has this marker."""
    return SimpleNamespace(get_closest_marker=lambda name: name == marker or None)


def test_a_run_without_the_soak_is_whole(root: Path) -> None:
    recorder = process(root, "impls")
    recorder.pytest_deselected([item_with("soak")])
    recorder.pytest_testnodedown(worker(root, FILE, REWORDED))
    assert finish(recorder) == 1


def test_the_option_writes_what_was_wholly_tested_and_keeps_the_rest(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: dict[str, Any] = {}
    monkeypatch.setattr(snapshots, "write", written.__setitem__)
    recorder = process(root, "impls", write=True)
    recorder.pytest_testnodedown(worker(root, FILE, REWORDED))
    assert finish(recorder) == 0
    reworded = ["OutOfRangeError: rate: expected > N, got VALUE; pass N."]
    assert written == {sentences.NAME: {"reference": reworded, "tf": ["other"]}}


def test_every_error_of_this_process_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[type] = []
    monkeypatch.setattr(Recorder, "note", lambda self, cls, args: heard.append(cls))
    with pytest.raises(ShapeError, match="a shape"):
        raise ShapeError("a shape")
    assert heard == [ShapeError]
