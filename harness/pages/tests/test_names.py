"""The table of arguments is complete, and every difference in it is explained."""

from __future__ import annotations

import pytest

from harness.pages.names import REASONS, arguments, parameters
from lockstep.registry import BACKENDS
from lockstep.tests.original_signatures import SIGNATURES


def test_each_argument_of_the_originals_is_on_each_backend() -> None:
    rows = arguments()
    assert {row.tool for row in rows} == set(SIGNATURES)
    assert {tuple(row.backends) for row in rows} == {tuple(BACKENDS)}
    originals = [row for row in rows if row.original is not None]
    assert [
        (row.tool, row.name) for row in originals if None in row.backends.values()
    ] == []


def test_every_difference_has_its_reason_and_every_reason_a_difference() -> None:
    assert {row.name for row in arguments() if row.differs} == set(REASONS)


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("(a, b=1)", {"a": "required", "b": "1"}),
        ("class(a: 'Any', *, b: 'X | None' = None) -> 'None', a T", ["a", "b"]),
        ("(x: 'Callable[[Any], Any]', dtype: 'Any' = <class 'float32'>) -> 'T'", None),
        ("(self, *args: 'Any', **kwargs: 'Any') -> 'Any'", ["self", "args", "kwargs"]),
    ],
)
def test_a_recorded_signature_is_read(signature: str, expected: object) -> None:
    read = parameters(signature)
    if expected is None:
        assert read == {"x": "required", "dtype": "'float32'"}
    else:
        assert (read if isinstance(expected, dict) else list(read)) == expected
