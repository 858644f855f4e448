"""The digest of a module: what leaves it, and what changes it."""

from __future__ import annotations

import pytest

from harness.mutation.digests import current_digest, module_digest
from harness.mutation.mutant import source_of

LARC = "impls/lockstep/reference/clipping/larc.py"
SOURCE = '''
"""Functions."""
SIZE = 3

class Table:
    def total(self, rows):
        """Return the sum of some rows."""
        global SIZE
        found = [2 * value for value in rows]  # doubled
        SIZE = len(found)
        return sum(found, start=SIZE)
'''


def renamed(*pairs: tuple[str, str]) -> str:
    """Return the source with texts replaced."""
    source = SOURCE
    for before, after in pairs:
        assert before in source
        source = source.replace(before, after)
    return source


SAME = {
    "a docstring": renamed(("Return the sum", "Add")),
    "no docstring": renamed(('        """Return the sum of some rows."""\n', "")),
    "a comment": renamed(("# doubled", "# twice")),
    "a line break": renamed(("[2 * value for", "[\n            2 * value for")),
    "a variable": renamed(("found", "doubles")),
    "the variable of a comprehension": renamed(("value", "row")),
    "two variables that exchange names": renamed(
        ("found", "x"), ("value", "found"), ("x", "value")
    ),
}
OTHER = {
    "a number": renamed(("2 *", "3 *")),
    "an operator": renamed(("2 *", "2 +")),
    "one variable for another": renamed(("sum(found", "sum(rows")),
    "a global name": renamed(("SIZE", "LENGTH")),
    "an argument": renamed(("rows", "values")),
    "a keyword": renamed(("start=", "begin=")),
    "a function": renamed(("total", "add")),
}


@pytest.mark.parametrize("source", SAME.values(), ids=SAME.keys())
def test_other_words_leave_the_digest(source: str) -> None:
    assert source != SOURCE
    assert module_digest(source) == module_digest(SOURCE)


@pytest.mark.parametrize("source", OTHER.values(), ids=OTHER.keys())
def test_other_code_changes_the_digest(source: str) -> None:
    assert module_digest(source) != module_digest(SOURCE)


def test_a_module_that_is_gone_has_no_digest() -> None:
    assert current_digest(LARC) == module_digest(source_of(LARC))
    assert current_digest("impls/gone.py") is None
