"""Recorded cases: read from a folder of golden files and decoded to NumPy."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from harness.errors import HarnessError
from lockstep.errors import unknown_name
from lockstep.interface import Array, Gradient, Rows

GOLDEN = Path(__file__).parent / "golden"
FOUND = Path(__file__).parent / "found"
"""Cases found by random search and recorded here with TensorFlow 1.15."""

SHOWN_FIRST = (
    "base_optimizers",
    "multitask",
    "multitask_clip",
    "variable_clipping",
    "loss_scale_fixed",
    "loss_scale_dynamic",
    "auto_loss_scaler_backoff",
    "auto_loss_scaler_logmax",
    "mixed_precision_wrapper",
    "larc",
    "clip_by_global_norm",
    "optimize_loss",
    "agn",
    "lr_policies",
    "regularization_loss",
    "novograd",
)
"""The order of families in reports and on pages; others follow, sorted by name."""

OTHERS = {path.stem for path in GOLDEN.glob("*.json")} - {*SHOWN_FIRST}
FAMILIES = (*SHOWN_FIRST, *sorted(OTHERS))
"""The recorded families; a new one needs only its file in ``golden/``."""


State = dict[str, Array]
"""What there is after a step, replayed or recorded: quantity -> value."""


class CannotInterpretError(Exception):
    """A case contains something that this version cannot replay."""


@dataclass(frozen=True)
class Variable:
    """A variable of a case. Its value has the recorded dtype and shape."""

    name: str
    value: Array

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the variable, and of its gradients and slots."""
        return self.value.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the variable."""
        return self.value.shape


@dataclass(frozen=True)
class Case:
    """One recorded case, as FORMAT.md describes it."""

    family: str
    id: str
    kind: str
    inputs: Mapping[str, Any]
    expected: Mapping[str, Any]

    @property
    def optimizer(self) -> str:
        """The name of the base optimizer, or an empty string."""
        entry = self.inputs.get("optimizer", {})
        return str(entry.get("name", "") if isinstance(entry, Mapping) else entry)

    @property
    def gradients(self) -> Sequence[Any]:
        """All gradients of the case, by step or by event."""
        events = self.inputs.get("events", [])
        steps: Sequence[Any] = self.inputs.get("gradients", [])
        return steps or [event["gradients"] for event in events]

    @property
    def sparse(self) -> bool:
        """Whether any gradient of the case is sparse, including those of workers."""
        return any(_rows(self.gradients))

    @property
    def largest(self) -> int:
        """Size of the largest variable, or of its named rows; 0 without variables."""
        variables = self.inputs.get("variables", [])
        # The variables of a custom getter are texts.
        shapes = [v["shape"] for v in variables if isinstance(v, Mapping)]
        named = [len(rows["indices"]) for rows in _rows(self.gradients)]
        blocks = [max(named, default=0) * math.prod(shape[1:]) for shape in shapes]
        return max([*map(math.prod, shapes), *blocks], default=0)

    @property
    def variables(self) -> list[Variable]:
        """The variables with their initial values."""
        return [
            Variable(v["name"], array(v["value"], v["dtype"], v["shape"]))
            for v in self.inputs["variables"]
        ]

    def assuming(self, inputs: Mapping[str, Any]) -> Case:
        """Return the case with these inputs where it omits them."""
        return replace(self, inputs={**inputs, **self.inputs})


def read_cases(folder: Path, families: Sequence[str] = ()) -> list[Case]:
    """Read every golden file of ``folder``, or only those of the given families."""
    for family in families:
        if family not in FAMILIES:
            raise HarnessError(str(unknown_name("family", family, FAMILIES)))
    require_folder(folder)
    cases = [case for path in sorted(folder.glob("*.json")) for case in _read(path)]
    if not cases:
        raise HarnessError(
            f"--golden: expected *.json files, got none; look into {folder}."
        )
    return [case for case in cases if not families or case.family in families]


def require_folder(folder: Path) -> None:
    """Raise unless a folder of golden files exists."""
    if not folder.is_dir():
        raise HarnessError(
            f"--golden: expected a folder of golden files (FAMILY.json), got {folder}; "
            "check the path."
        )


def array(value: Any, dtype: str, shape: Sequence[int] | None = None) -> Array:
    """Decode a nested list: parse as doubles, then round once to ``dtype``."""
    decoded = np.array(_numbers(value), np.float64 if "float" in dtype else dtype)
    with np.errstate(over="ignore"):
        typed = decoded.astype(dtype)
    return typed if shape is None else typed.reshape(tuple(shape))


def gradient(value: Any, variable: Variable) -> Gradient:
    """Decode one gradient (dense, sparse or absent) in its variable's dtype."""
    return lone_gradient(value, str(variable.dtype), variable.shape)


def lone_gradient(
    value: Any, dtype: str, shape: tuple[int, ...] | None = None
) -> Gradient:
    """Decode one gradient. Without ``shape``, it has the shape that was recorded."""
    if value is None:
        return None
    if not isinstance(value, dict):
        return array(value, dtype, shape)
    indices, rows = np.array(value["indices"], np.int64), array(value["values"], dtype)
    dense_shape = value.get("dense_shape")
    # Without rows, only a shape says how long they would be.
    row_shape = (shape or dense_shape or rows.shape)[1:]
    rows = rows.reshape(len(indices), *row_shape)
    return Rows(indices, rows, None if dense_shape is None else tuple(dense_shape))


_CASE = TypeAdapter(Case)


def _read(path: Path) -> Iterator[Case]:
    try:
        content = json.loads(path.read_text("utf-8"))
        if content["format"] != 1:
            raise ValueError(f"expected format 1, got format {content['format']!r}")
        for case in content["cases"]:
            fields = {**case, "family": content["family"]}
            yield _CASE.validate_python(fields)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        # In one line, without the value and the address that pydantic adds.
        why = " ".join(str(error).partition(" [type=")[0].split())
        raise HarnessError(
            f"golden file {path.name}: expected JSON with the keys of FORMAT.md, got "
            f"{type(error).__name__} ({why}); restore the file from its source."
        ) from error


def _numbers(value: Any) -> Any:
    if isinstance(value, list):
        return [_numbers(entry) for entry in value]
    return float(value) if isinstance(value, str) else value


def _rows(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the sparse gradients in nested lists of gradients."""
    if isinstance(value, dict):
        yield value
    for entry in value if isinstance(value, list) else []:
        yield from _rows(entry)
