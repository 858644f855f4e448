"""Rewriting a program: edits of its import statements and of its full names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.port.imports import (
    STRICT_IMPORT,
    V1,
    Target,
    bindings,
    calls_behavior,
    lines,
    moved_module,
    targets,
)
from lockstep.port.leftovers import Leftover, leftovers
from lockstep.port.names import MODULES, STRICT, canonical, new_name
from lockstep.port.syntax import ROOTS, Import, Program, Span, Spelling, read

NEWLINE = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True)
class Change:
    """A line of the report: the line number, the old text and the new text."""

    line: int
    before: str
    after: str


@dataclass(frozen=True)
class Ported:
    """A ported program and its report."""

    source: bytes
    output: bytes
    changes: tuple[Change, ...]
    leftovers: tuple[Leftover, ...]


def port(source: bytes) -> Ported:
    """Port a program; raise a SyntaxError unless it is Python 3, in UTF-8."""
    text = source.decode("utf-8")
    if not any(root in text for root in ROOTS):
        return Ported(source, source, (), ())
    program = read(text)
    plan = _Plan(Source(source), program)
    plan.change_imports()
    plan.change_assigned()
    plan.change_spellings()
    plan.add_strict()
    changes = sorted(plan.changes, key=lambda change: change.line)
    left = leftovers(program, plan.old, plan.source.line_of)
    return Ported(source, plan.output(), tuple(changes), tuple(left))


class _Plan:
    """The edits of one program, collected step by step."""

    def __init__(self, source: Source, program: Program) -> None:
        self.source, self.program = source, program
        self.old = bindings(program)
        self.edits: list[Edit] = []
        self.changes: list[Change] = []
        self.below: dict[Import, list[str]] = {}
        """Import statement -> the lines to add below it."""
        self.strict, self.has_strict = _name_of_strict(program)
        self.needs_strict = False

    def change_imports(self) -> None:
        """Change import statements, and switch TensorFlow 2's behavior off once."""
        switched = calls_behavior(self.program)
        ordered = sorted(self.program.imports, key=lambda one: not one.at_top)
        for statement in ordered:
            new = targets(statement, self.old)
            if not statement.aliases or new == _unchanged(statement):
                continue
            plain = [target for target in new if target.module is None]
            names = [target.alias for target in plain if target.name == V1]
            calls = [f"{name}.disable_v2_behavior()" for name in names[:1]]
            self._change_import(statement, new, [] if switched else calls)
            switched = switched or bool(names)

    def change_assigned(self) -> None:
        """Replace ``name = tf.train.experimental`` by an import with this name."""
        for entry in self.program.assigned:
            binding = self.old.get(entry.name)
            if binding is None or canonical(entry.full) not in MODULES:
                continue
            target = moved_module(binding)
            if target is not None:
                self._replace(entry.span, *lines([target]))

    def change_spellings(self) -> None:
        """Replace full names by ``strict.NAME``."""
        done = [edit.span for edit in self.edits]
        for spelling in self.program.spellings:
            text = self._new_spelling(spelling)
            if text is None or any(span.holds(spelling.span) for span in done):
                continue
            self._replace(spelling.span, text)
            self.needs_strict = True

    def add_strict(self) -> None:
        """Import ``lockstep.tf.strict`` at the top if full names need it."""
        if not self.needs_strict or self.has_strict:
            return
        line = self._strict_import()
        places = [one for one in self.program.imports if self._is_anchor(one)]
        if places:
            self.below.setdefault(places[0], []).append(line)
            start = places[0].span.start
        else:
            start = self.program.start
            self.edits.append(Edit(Span(start, start), line + self.source.newline))
        self.changes.append(Change(self.source.line_of(start), "", line))

    def output(self) -> bytes:
        """Return the program after all edits, which do not overlap."""
        edits, newline = list(self.edits), self.source.newline
        for statement, added in self.below.items():
            place = statement.span.end
            begin, end = (
                newline + self.source.indent(place),
                self.source.line_end(place),
            )
            text = "".join(begin + line if line else newline for line in added)
            edits.append(Edit(Span(end, end), text))
        data = self.source.data
        last_first = sorted(edits, key=lambda e: (e.span.start, e.span.end))[::-1]
        for edit in last_first:
            before, after = data[: edit.span.start], data[edit.span.end :]
            data = before + edit.text.encode() + after
        return data

    def _change_import(
        self, statement: Import, new: Sequence[Target], calls: Sequence[str]
    ) -> None:
        """Change one statement, and add ``calls`` after it."""
        texts = lines(new)
        self.has_strict |= statement.at_top and self._strict_import() in texts
        modules = {target.module for target in new}
        same_names = [str(target) for target in new] == _names(statement)
        if statement.module is not None and len(modules) == 1 and same_names:
            self.edits.append(Edit(statement.module_span, str(*modules)))
        else:
            # Comments inside the statement are moved above it.
            comments = re.findall(r"#[^\r\n]*", self.source.text(statement.span))
            indent = self.source.indent(statement.span.start)
            separator = "; " if statement.inline else self.source.newline + indent
            added = [] if self._is_alone(statement) else calls
            text = separator.join([*comments, *texts, *added])
            self.edits.append(Edit(statement.span, text))
        if calls and self._is_alone(statement):
            self.below[statement] = ["", *calls] if statement.at_top else [*calls]
        self._report(statement.span, "; ".join([*texts, *calls]))

    def _new_spelling(self, spelling: Spelling) -> str | None:
        """Return the replacement of a full name; None if it does not change."""
        module, dot, name = spelling.text.rpartition(".")
        target = new_name(spelling.full)
        if target is None or not dot:
            return None
        binding = self.old.get(module)
        if binding and binding.complete:  # The import itself is replaced.
            return None
        return f"{self.strict}{target[0].removeprefix(STRICT)}.{name}"

    def _strict_import(self) -> str:
        alias = "" if self.strict == "strict" else f" as {self.strict}"
        return f"{STRICT_IMPORT}{alias}"

    def _is_anchor(self, statement: Import) -> bool:
        modules = [statement.module] if statement.module else _names(statement)
        is_old = any(module.startswith(ROOTS) for module in modules)
        return is_old and statement.at_top and self._is_alone(statement)

    def _is_alone(self, statement: Import) -> bool:
        """Whether lines can be added below: only a comment follows it in its line."""
        end = statement.span.end
        rest = self.source.data[end : self.source.line_end(end)].strip()
        return not statement.inline and (not rest or rest.startswith(b"#"))

    def _replace(self, span: Span, text: str) -> None:
        self.edits.append(Edit(span, text))
        self._report(span, text)

    def _report(self, span: Span, after: str) -> None:
        before = " ".join(self.source.text(span).split())
        line = self.source.line_of(span.start)
        self.changes.append(Change(line, before, after))


def _name_of_strict(program: Program) -> tuple[str, bool]:
    """Return a program's name for ``lockstep.tf.strict``, and whether it imports it."""
    for statement in program.imports:
        for alias in statement.aliases:
            if f"from {statement.module} import {alias.name}" == STRICT_IMPORT:
                return alias.alias or alias.name, statement.at_top
    return "lockstep_strict" if "strict" in program.bound else "strict", False


def _unchanged(statement: Import) -> list[Target]:
    return [Target(statement.module, one.name, one.alias) for one in statement.aliases]


def _names(statement: Import) -> list[str]:
    return [str(target) for target in _unchanged(statement)]


@dataclass(frozen=True)
class Edit:
    """A part of the program and the text that replaces it."""

    span: Span
    text: str


class Source:
    """The UTF-8 text of a program."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        match = NEWLINE.search(data)
        self.newline = match.group().decode() if match else "\n"

    def text(self, span: Span) -> str:
        """Return a part of the program."""
        return self.data[span.start : span.end].decode()

    def line_of(self, place: int) -> int:
        """Return the number of the line with the byte at ``place``."""
        return len(NEWLINE.findall(self.data[:place])) + 1

    def line_end(self, place: int) -> int:
        """Return the end of the line with the byte at ``place``."""
        match = NEWLINE.search(self.data, place)
        return match.start() if match else len(self.data)

    def indent(self, place: int) -> str:
        """Return the indentation of the line with the byte at ``place``."""
        begins = (self.data.rfind(newline, 0, place) for newline in (b"\n", b"\r"))
        match = re.match(rb"[ \t]*", self.data[max(begins) + 1 :])
        return match.group().decode() if match else ""
