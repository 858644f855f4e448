"""A pytest plugin: the sentence of every error that a test run constructs.

The tests of ``impls`` raise every error of Lockstep, so the sentences that a whole run
collects are the snapshot ``sentences``. A run that tested all of a backend compares its
sentences with the snapshot. It fails if one is missing, because it was reworded or is
no longer raised. New sentences are listed. Partial runs are not compared.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.nets import snapshots
from lockstep import registry
from lockstep.messages.errors import LockstepError

__all__ = ["SHARED", "Recorder", "normalized", "part_of"]

NAME = "sentences"
SHARED = "shared"
"""Name for the tests that belong to no backend."""

OPTION = "--write-sentences"
KEY = "error_sentences"
"""Key under which a process of pytest-xdist stores the sentences it collected."""

RULES = (
    # A framework's own words, and the arbitrary values of a damaged state.
    (r"(?<=with which it fails) \(.*\)(?=; load what )", ""),
    (r"(?<=, got ).*(?=; load (?:what|it) )", "VALUE"),
    (r"'[^']*'(?=.*; load what )", "NAME"),
    (r"(?<=the saved slots ).*(?= for NAME)", "NAMES"),
    # Keras numbers the names that it creates, per process.
    (r"\b(variable|sequential|dense)_\d+\b", r"\1"),
    # The module of a class may change.
    (r"(?<=<class ')(?:\w+\.)+(?=\w+'>)", ""),
    (r"\b0x[0-9a-fA-F]+", "ADDRESS"),
    (r"(?<![\w.])/(?:[\w.+~-]+/)+[\w.+~-]*", "PATH"),
    (r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w)", "N"),
    (r"\bN(?:, N)+\b", "N, ..."),
    (
        r"(?<=, got )('.*'|\[.*\]|\(.*\)|\{.*\}|(tensor|array)\(.*\)|None|True|False|N"
        r"|-?nan|-?inf)(?=; )",
        "VALUE",
    ),
)
"""Patterns and their replacements, applied in order."""


def normalized(sentence: str) -> str:
    """Remove values, numbers, paths, addresses and a framework's own words.

    Example:
        >>> normalized("w: expected a shape [2, 3], got [2]; use 1e-3.")
        'w: expected a shape [N, ...], got VALUE; use N.'
    """
    for pattern, text in RULES:
        sentence = re.sub(pattern, text, sentence, flags=re.DOTALL)
    return sentence


def part_of(path: Path, root: Path) -> str | None:
    """Return the backend that a test belongs to, ``SHARED``, or None outside impls."""
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    if parts[:2] != ("impls", "lockstep"):
        return None
    return parts[2] if parts[2] in registry.BACKENDS else SHARED


class Recorder:
    """Collects the sentences of one pytest process and compares them.

    Attributes:
        sentences: part -> its sentences.
        files: test files of which a test was run.
        whole: whether all tests of these files were run.
        lines: lines that are printed at the end.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.root, self.config = config.rootpath, config
        self.sentences: defaultdict[str, set[str]] = defaultdict(set)
        self.files: set[str] = set()
        self.whole = not any("::" in argument for argument in config.args)
        self.part: str | None = None
        self.lines: list[str] = []

    def note(self, error: type[LockstepError], args: tuple[Any, ...]) -> None:
        """Record the sentence of an error that is constructed during a test."""
        text = "; ".join(map(str, args))
        # Autograph constructs the error again, with its origin.
        if self.part is not None and not text.startswith("in user code:"):
            self.sentences[self.part].add(f"{error.__name__}: {normalized(text)}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Record the errors of one test under the part that the test belongs to."""
        self.part = part_of(item.path, self.root)
        if self.part is not None:
            self.files.add(item.path.relative_to(self.root).as_posix())
        try:
            return (yield)
        finally:
            self.part = None

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Mark the run as partial if a test other than a soak test was deselected.

        Soak tests raise no error that other tests do not.
        """
        self.whole &= all(item.get_closest_marker("soak") for item in items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the sentences of a finished process of pytest-xdist."""
        output = getattr(node, "workeroutput", {}).get(KEY)
        if output is None:  # It crashed.
            self.whole = False
            return
        sentences, files, whole = output
        self.files.update(files)
        self.whole &= whole
        for part, texts in sentences.items():
            self.sentences[part].update(texts)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Send the sentences to the main process, or compare them with the snapshot.

        Only the main process of a passed run compares them, or writes the snapshot if
        the option is set. The run fails if a frozen sentence is missing.
        """
        if hasattr(self.config, "workeroutput"):
            sentences = {part: sorted(texts) for part, texts in self.sentences.items()}
            self.config.workeroutput[KEY] = sentences, sorted(self.files), self.whole
        elif exitstatus == pytest.ExitCode.OK and self._whole_parts():
            fresh = {part: sorted(self.sentences[part]) for part in self._whole_parts()}
            if self.config.getoption(OPTION):
                snapshots.write(NAME, {**snapshots.read(NAME), **fresh})
            elif self._judge(fresh, snapshots.read(NAME)):
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print how the sentences differ from the snapshot."""
        if self.lines:
            terminalreporter.section("sentences of errors")
            terminalreporter.write("\n".join(self.lines) + "\n")

    def _whole_parts(self) -> list[str]:
        """Return the parts of which every file was tested."""
        if not (self.whole and all(map(registry.installed, registry.BACKENDS))):
            return []
        files: defaultdict[str, set[str]] = defaultdict(set)
        for path in (self.root / "impls").rglob("test_*.py"):
            part = part_of(path, self.root)
            files[part or ""].add(path.relative_to(self.root).as_posix())
        return [part for part, known in files.items() if part and known <= self.files]

    def _judge(
        self, fresh: Mapping[str, list[str]], frozen: Mapping[str, list[str]]
    ) -> bool:
        """List the differences; return whether a frozen sentence is missing."""
        gone, new = [], []
        for part, sentences in fresh.items():
            known, current = set(frozen.get(part, ())), set(sentences)
            gone += [f"- {part}: {text}" for text in sorted(known - current)]
            new += [f"+ {part}: {text}" for text in sorted(current - known)]
        remedy = f"to write them: python -m harness.nets write {NAME}"
        if gone:
            self.lines += [*gone, *new, f"FAILED: {len(gone)} are missing; {remedy}"]
        elif new:
            self.lines.append(f"{len(new)} are not in the snapshot; {remedy}")
        return bool(gone)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the snapshot instead of comparing with it."""
    text = "write the sentences of wholly tested parts of impls to the snapshot"
    parser.addoption(OPTION, action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Make every Lockstep error record its sentence when it is constructed."""
    recorder = Recorder(config)
    config.pluginmanager.register(recorder, NAME)

    # Not __init__: tf.function uses it to decide which errors it can raise again.
    def new(cls: type[LockstepError], *args: Any, **named: Any) -> LockstepError:
        recorder.note(cls, args)
        return super(LockstepError, cls).__new__(cls, *args, **named)

    LockstepError.__new__ = new  # type: ignore[method-assign,assignment]
