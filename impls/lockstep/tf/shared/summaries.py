"""Summaries of a step: their names and tags, and recorders for graphs and writers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from lockstep.errors import DtypeError, unknown_name
from lockstep.tf.shared.gradients import summed_values

OPTIMIZER_SUMMARIES = [
    "learning_rate",
    "gradients",
    "gradient_norm",
    "global_gradient_norm",
    "variables",
    "variable_norm",
    "larc_summaries",
    "loss_scale",
]
"""The names of all summaries."""

DEFAULT_SUMMARIES = ["learning_rate", "global_gradient_norm", "loss_scale"]
"""The summaries for ``summaries=None``."""


class Recorder(Protocol):
    """Interface of a recorder of summaries, such as the module ``tf.summary``."""

    def scalar(self, tag: str, value: Any) -> None:
        """Record a 0-d value."""
        ...

    def histogram(self, tag: str, values: Any) -> None:
        """Record values of any shape; all are finite."""
        ...


class SummaryRecord:
    """A recorder that stores the last value of each tag.

    Attributes:
        scalars: tag -> 0-d tensor.
        histograms: tag -> tensor.
    """

    def __init__(self) -> None:
        self.scalars: dict[str, Any] = {}
        self.histograms: dict[str, Any] = {}

    def scalar(self, tag: str, value: Any) -> None:
        """Store a 0-d value."""
        self.scalars[tag] = value

    def histogram(self, tag: str, values: Any) -> None:
        """Store values of any shape."""
        self.histograms[tag] = values


class Summaries(NamedTuple):
    """The requested summaries and their recorder; without one none is computed."""

    names: frozenset[str]
    recorder: Recorder | None

    def wants(self, *names: str) -> bool:
        """Return whether any of these summaries is to be recorded."""
        return self.recorder is not None and not self.names.isdisjoint(names)

    def scalar(self, name: str, kind: str, value: Any, variable: str = "") -> None:
        """Record ``value`` under the tag of ``kind`` if ``name`` was requested."""
        if self.recorder is not None and name in self.names:
            self.recorder.scalar(tag_of(kind, variable), value)

    def histogram(self, name: str, values: Any, variable: str) -> None:
        """Record the finite ``values`` if ``name`` was requested."""
        if self.recorder is not None and name in self.names:
            self.recorder.histogram(tag_of(name, variable), values)


class Entry(NamedTuple):
    """A gradient or None, its variable, and the variable's name for tags."""

    gradient: Any
    variable: tf.Variable
    name: str


def tag_of(kind: str, variable: str = "") -> str:
    """Return the tag KIND, or KIND/VARIABLE with ":" replaced by "_"."""
    return f"{kind}/{variable.replace(':', '_')}" if variable else kind


def check_summaries(summaries: Iterable[str] | None, owner: str) -> frozenset[str]:
    """Return the requested names; None means the default summaries."""
    if isinstance(summaries, str):
        raise DtypeError(
            f"{owner}: summaries: expected a list of names or None, got {summaries!r}; "
            f"write [{summaries!r}]."
        )
    names = DEFAULT_SUMMARIES if summaries is None else list(summaries)
    for name in names:
        if name not in OPTIMIZER_SUMMARIES:
            raise unknown_name(f"{owner}: summaries", name, OPTIMIZER_SUMMARIES)
    return frozenset(names)


def host_recorder() -> Recorder | None:
    """Return TensorFlow's own recorder; None if nothing is recorded.

    In a graph its operations are in the collection SUMMARIES. In other modes it writes
    to the default writer, at its current step.
    """
    with tf.init_scope():
        eager = tf.executing_eagerly()
    if not eager:
        return tf.compat.v1.summary
    listens = tf.get_static_value(tf.summary.should_record_summaries())
    return tf.summary if listens is None or listens else None


def record_entries(asked: Summaries, entries: Sequence[Entry]) -> None:
    """Record the summaries of each present gradient and its variable."""
    if not asked.wants("gradients", "gradient_norm", "variables", "variable_norm"):
        return
    for gradient, variable, name in entries:
        if gradient is not None:
            record_values(asked, "gradient", summed_values(gradient), name)
            record_values(asked, "variable", tf.convert_to_tensor(variable), name)


def record_values(asked: Summaries, what: str, values: tf.Tensor, name: str) -> None:
    """Record the finite values of a tensor, and its norm in float32."""
    if asked.wants(f"{what}s"):
        finite = tf.where(tf.math.is_finite(values), values, tf.zeros_like(values))
        asked.histogram(f"{what}s", finite, name)
    if asked.wants(f"{what}_norm"):
        norm = tf.sqrt(tf.reduce_sum(tf.square(tf.cast(values, tf.float32))))
        asked.scalar(f"{what}_norm", f"{what}_norm", norm, name)


# -- the record of a step --------------------------------------------------------------


def new_record() -> SummaryRecord | None:
    """Return an empty record; None if nothing is recorded."""
    return None if host_recorder() is None else SummaryRecord()


def add_to_graph(record: SummaryRecord | None) -> None:
    """Add the record's operations to the collection SUMMARIES of the graph."""
    if record is None:
        return
    for tag, value in record.scalars.items():
        tf.compat.v1.summary.scalar(tag, value)
    for tag, values in record.histograms.items():
        tf.compat.v1.summary.histogram(tag, values)


def write_summaries(
    record: SummaryRecord | None, step: tf.Tensor, wanted: tf.Tensor | bool
) -> None:
    """Write to the default writer of ``tf.summary``, if this step is ``wanted``."""
    if record is None:
        return
    both = tf.logical_and(tf.summary.should_record_summaries(), wanted)
    with tf.summary.record_if(both):
        for tag, value in record.scalars.items():
            tf.summary.scalar(tag, value, step)
        for tag, values in record.histograms.items():
            tf.summary.histogram(tag, values, step)


def flat(record: SummaryRecord | None) -> list[tf.Tensor]:
    """Return the values of a record as a list, which a condition can return."""
    if record is None:
        return []
    values = [*record.scalars.values(), *record.histograms.values()]
    return [tf.convert_to_tensor(value) for value in values]


def blank(record: SummaryRecord | None) -> list[tf.Tensor]:
    """Return placeholders for the values of a record, for a call without an update.

    A number becomes NaN, which TensorBoard does not draw. A histogram becomes zeros,
    because histograms do not accept NaN, not even those of a 0-d variable.
    """
    numbers = 0 if record is None else len(record.scalars)
    return [
        tf.constant(float("nan"), value.dtype)
        if value.dtype.is_floating and place < numbers
        else tf.zeros([size or 0 for size in value.shape], value.dtype)
        for place, value in enumerate(flat(record))
    ]


def refill(record: SummaryRecord | None, values: list[tf.Tensor]) -> None:
    """Replace a record's values from a branch by the values of the condition."""
    if record is None:
        return
    left = iter(values)
    for kind in (record.scalars, record.histograms):
        kind.update({tag: next(left) for tag in kind})
