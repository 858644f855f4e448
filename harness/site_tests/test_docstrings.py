"""Docstrings are converted to the format of the API pages."""

from __future__ import annotations

import pytest

docstrings = pytest.importorskip(
    "harness.pages.hooks.docstrings", reason="Griffe is installed with the site only"
)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (
            "See :class:`~lockstep.interface.Rows`.",
            'See <autoref optional identifier="lockstep.interface.Rows">'
            "<code>Rows</code></autoref>.",
        ),
        ("A :func:`torch.where`.", "A <code>torch.where</code>."),
        ("Example:\n    >>> 1 + 1", "Examples:\n    >>> 1 + 1"),
        (
            "Args:\n    a, b: both\n        of them.\n    c: alone, and: so on.",
            "Args:\n    a: both\n        of them.\n    b: both\n        of them.\n"
            "    c: alone, and: so on.",
        ),
        ("Args:\n    args, kwargs: all.", "Args:\n    *args: all.\n    **kwargs: all."),
        ("a, b: prose is left alone.", "a, b: prose is left alone."),
    ],
)
def test_a_docstring_becomes_markdown(written: str, shown: str) -> None:
    assert docstrings.as_markdown(written) == shown


def test_arguments_that_no_signature_has_become_a_list() -> None:
    listed = docstrings.as_list(
        "Args:\n    a: one\n        of two.\n    b: the other.\n"
    )
    heading, _, items = listed.partition("\n\n")
    assert heading.endswith(":") and not heading.startswith("Args")
    assert items == "- `a`: one\n  of two.\n- `b`: the other.\n"
