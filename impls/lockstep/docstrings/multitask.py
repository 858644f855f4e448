"""The multitask wrapper: docstring texts that all backends share."""

from __future__ import annotations

__all__ = ["TEXTS"]

TEXTS: dict[str, str] = {
    "MultitaskOptimizerWrapper": """\
Skip the update of a {variable} and its state if its gradient is all zero.

For each (gradient g, {variable} w): if g has no nonzero element, neither w nor any of
its state changes, as if g were absent; otherwise ``opt`` updates them as usual. -0.0
is zero, NaN and infinity are not. The duplicate rows of a sparse gradient are summed
before the test.

Args:
    opt: any optimizer of this backend, a wrapper included.
    strict: reproduce the original with its quirks: ``opt`` is changed in place.

Raises:
    NotAnOptimizerError: a TypeError; ``opt`` is no optimizer of this backend.

Origin: TensorFlow 1.15, ``tf.contrib.opt.MultitaskOptimizerWrapper``.
""",
}
"""Name of a class or function -> its shared docstring text."""
