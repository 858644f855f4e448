"""Family ``clip_by_global_norm``: OpenSeq2Seq's two clipping functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from harness.parity.cases import (
    CannotInterpretError,
    Case,
    Variable,
    array,
    gradient,
)
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import flat
from lockstep.interface import Array, Gradient, Rows
from lockstep.reference.post_process import SummaryRecord

__all__ = ["FAMILIES", "KINDS", "expectations", "replay"]

FAMILIES = ("clip_by_global_norm",)

State = Mapping[str, Array]

KINDS = frozenset(
    {
        "absent",
        "absent_in_list",
        "computed_norm",
        "computed_norm_below",
        "edge_norm",
        "explicit_norm",
        "float16",
        "float16_to_float32",
        "large_float16",
        "nonfinite",
        "norm_overflow",
        "not_a_sequence",
        "rounding",
        "scalar_entry",
        "sparse",
        "sparse_float16",
        "variable_dtype_differs",
        "zero_gradients",
    }
)
INPUTS = (
    "function",
    "t_list",
    "t_list_is",
    "gradients",
    "dtypes",
    "clip_norm",
    "use_norm",
    "clip_gradients",
    "variable_dtypes",
)
EXPECTED = ("list_clipped", "gradients", "dtypes", "global_norm", "raises")
GLOBAL_NORM = "global_gradient_norm"


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Clip once, with the function that the case names."""
    case.require_known(INPUTS, EXPECTED)
    if "t_list_is" in case.inputs:
        yield _refused(case, driver)
        return
    functions = {
        "_clip_by_global_norm": _list_clipped,
        "_clip_gradients_by_norm": _pairs_clipped,
    }
    function = case.inputs.get("function")
    if function not in functions:
        raise CannotInterpretError(f"the function {function!r}")
    yield functions[function](case, driver)


def expectations(case: Case) -> Iterator[State]:
    """Yield the results of the recorded call."""
    clipped = case.expected.get("list_clipped", case.expected.get("gradients"))
    entries = zip(clipped, case.expected["dtypes"], strict=True)
    result = _flattened([_decoded(*entry) for entry in entries])
    if "global_norm" in case.expected:
        result[GLOBAL_NORM] = array(case.expected["global_norm"], "float32")
    yield result


def _list_clipped(case: Case, driver: Driver) -> State:
    limit = float(case.inputs["clip_norm"])
    entries = zip(case.inputs["t_list"], case.inputs["dtypes"], strict=True)
    tensors = [_decoded(*entry) for entry in entries]

    def function(arrays: list[Any]) -> Any:
        *t_list, use_norm = arrays
        clipped, _ = driver.names.clip_by_global_norm(t_list, limit, use_norm)
        return list(clipped)

    use_norm = array(case.inputs["use_norm"], "float32")
    return _flattened(driver.compile(function)([*tensors, use_norm]))


def _pairs_clipped(case: Case, driver: Driver) -> State:
    limit = float(case.inputs["clip_gradients"])
    entries = zip(case.inputs["gradients"], case.inputs["dtypes"], strict=True)
    tensors = [_decoded(*entry) for entry in entries]
    dtypes = case.inputs["variable_dtypes"]
    variables = [
        driver.variable(f"v{k}", np.zeros(_shape(g), dtype))
        for k, (g, dtype) in enumerate(zip(tensors, dtypes, strict=True))
    ]

    def function(gradients: list[Any]) -> Any:
        pairs = list(zip(gradients, variables, strict=True))
        clipped = driver.names.clip_gradients_by_norm(pairs, limit)
        record = SummaryRecord()
        driver.names.post_process_gradients(
            pairs, [GLOBAL_NORM], 0.1, None, None, recorder=record
        )
        return [[g for g, _ in clipped], record.scalars[GLOBAL_NORM]]

    clipped, norm = driver.compile(function)(tensors)
    return {**_flattened(clipped), GLOBAL_NORM: np.asarray(norm)}


def _refused(case: Case, driver: Driver) -> State:
    """Pass an argument that is not a sequence. The recorded result is an error."""

    def function(tensors: list[Any]) -> Any:
        kinds = {
            "string": "abc",
            "tensor": tensors[0],
            "generator": (tensor for tensor in tensors),
        }
        kind = case.inputs["t_list_is"]
        if kind not in kinds:
            raise CannotInterpretError(f"a t_list that is {kind!r}")
        clipped, _ = driver.names.clip_by_global_norm(kinds[kind], 1.0, tensors[0])
        return list(clipped)

    return _flattened(driver.compile(function)([np.array(1, np.float32)]))


def _decoded(value: Any, dtype: str | None) -> Gradient:
    """Decode a gradient without a variable: it has its own shape."""
    if value is None or dtype is None:
        return None
    if not isinstance(value, dict):
        return array(value, dtype)
    shape = value.get("dense_shape")
    if shape is None:
        raise CannotInterpretError("a sparse gradient without a dense shape")
    return gradient(value, Variable("", np.empty(shape, dtype), tuple(shape)))


def _shape(gradient: Gradient) -> tuple[int, ...]:
    if gradient is None:
        return (1,)
    if isinstance(gradient, Rows):
        assert gradient.dense_shape is not None
        return gradient.dense_shape
    return gradient.shape


def _flattened(gradients: Sequence[Gradient]) -> dict[str, Array]:
    state: dict[str, Array] = {}
    for position, value in enumerate(gradients):
        state |= flat(f"gradients/{position}", value)
    return state
