"""Names in a program that Lockstep does not have, with advice for the user."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from lockstep.port.imports import Binding, calls_behavior, has_new_name, is_v1
from lockstep.port.names import MODULES, canonical, hint
from lockstep.port.syntax import ROOTS, Program, Span

OLD_TEXT = re.compile(
    r"\b(tf|tensorflow)\.(contrib|train\.experimental)\b|\bopen_seq2seq\.optimizers\b"
)


@dataclass(frozen=True)
class Leftover:
    """A name that the user must port: its first line, and the number of places."""

    line: int
    name: str
    advice: str
    places: int


def leftovers(
    program: Program, old: Mapping[str, Binding], line_of: Callable[[int], int]
) -> list[Leftover]:
    """Return the names that the user must port, one entry per name, by line."""
    entries = [*_in_imports(program, old), *_in_spellings(program)]
    for span, text in program.texts:
        if OLD_TEXT.search(text):
            advice = "a string; if it names a module to import, write the new name"
            entries.append((span, f'"{text[:60]}"', advice))
    found: dict[str, Leftover] = {}
    for span, name, advice in sorted(entries, key=lambda entry: entry[0].start):
        first = found.get(name, Leftover(line_of(span.start), name, advice, 0))
        found[name] = replace(first, places=first.places + 1)
    return sorted(found.values(), key=lambda one: (one.line, one.name))


def _in_imports(
    program: Program, old: Mapping[str, Binding]
) -> Iterator[tuple[Span, str, str]]:
    # Does neither the program nor the ported one switch to TensorFlow 1's behavior?
    plain = [one for one in program.imports if one.module is None]
    names = {canonical(alias.name) for one in plain for alias in one.aliases}
    lacks_call = "tensorflow" not in names and not calls_behavior(program)
    for statement in program.imports:
        module = canonical(statement.module or "")
        if not statement.aliases and module.split(".")[0] in ROOTS:
            advice = "import the names that you use one by one, then port again"
            yield statement.span, f"from {statement.module} import *", advice
        for alias in statement.aliases:
            full = f"{module}.{alias.name}" if module else alias.name
            binding = old.get(alias.alias or alias.name.split(".")[0])
            if binding is None or not binding.complete:
                yield from _hinted(statement.span, full)
            if lacks_call and module and is_v1(full):
                yield (
                    statement.span,
                    "disable_v2_behavior",
                    "call tensorflow.compat.v1.disable_v2_behavior() before the first "
                    "operation is made",
                )


def _in_spellings(program: Program) -> Iterator[tuple[Span, str, str]]:
    assigned = [entry.span for entry in program.assigned]
    for spelling in program.spellings:
        if not spelling.whole:
            continue
        if canonical(spelling.full) in MODULES:
            if not any(span.holds(spelling.span) for span in assigned):
                advice = (
                    "a module used as a value; write names in full, as in "
                    "tf.contrib.opt.AdamWOptimizer, then port again"
                )
                yield spelling.span, spelling.text, advice
        else:
            yield from _hinted(spelling.span, spelling.full)


def _hinted(span: Span, full: str) -> Iterator[tuple[Span, str, str]]:
    remedy = None if has_new_name(full) else hint(full)
    if remedy is not None and canonical(full) not in MODULES:
        name, advice = remedy
        yield span, re.sub(r"^tensorflow\.(?!python)", "tf.", name), advice
