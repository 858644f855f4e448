"""Family ``clip_by_global_norm``: OpenSeq2Seq's two clipping functions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State, array
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import flat_list, lone_gradients
from lockstep.interface import Rows
from lockstep.reference.post_process import SummaryRecord

FAMILIES = ("clip_by_global_norm",)
INPUTS = (
    "function t_list t_list_is gradients dtypes clip_norm use_norm clip_gradients "
    "variable_dtypes"
).split()
EXPECTED = "list_clipped gradients dtypes global_norm raises".split()
GLOBAL_NORM = "global_gradient_norm"


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Clip once, with the function that the case names."""
    function = case.inputs.get("function")
    if "t_list_is" in case.inputs:
        yield _refused(case, driver)
    elif function == "_clip_by_global_norm":
        yield _list_clipped(case, driver)
    elif function == "_clip_gradients_by_norm":
        yield _pairs_clipped(case, driver)
    else:
        raise CannotInterpretError(f"the function {function!r}")


def expectations(case: Case) -> Iterator[State]:
    """Yield the results of the recorded call."""
    clipped = case.expected.get("list_clipped", case.expected.get("gradients"))
    result = flat_list("gradients", lone_gradients(clipped, case.expected["dtypes"]))
    if "global_norm" in case.expected:
        result[GLOBAL_NORM] = array(case.expected["global_norm"], "float32")
    yield result


def _list_clipped(case: Case, driver: Driver) -> State:
    limit = float(case.inputs["clip_norm"])

    def function(arrays: list[Any]) -> Any:
        *t_list, use_norm = arrays
        clipped, _ = driver.names.clip_by_global_norm(t_list, limit, use_norm)
        return list(clipped)

    tensors = lone_gradients(case.inputs["t_list"], case.inputs["dtypes"])
    use_norm = array(case.inputs["use_norm"], "float32")
    return flat_list("gradients", driver.compile(function)([*tensors, use_norm]))


def _pairs_clipped(case: Case, driver: Driver) -> State:
    limit = float(case.inputs["clip_gradients"])
    tensors = lone_gradients(case.inputs["gradients"], case.inputs["dtypes"])
    entries = zip(tensors, case.inputs["variable_dtypes"], strict=True)
    variables = []
    for k, (g, dtype) in enumerate(entries):
        shape: Any = (1,)
        if g is not None:
            shape = g.dense_shape if isinstance(g, Rows) else g.shape
        variables.append(driver.variable(f"v{k}", np.zeros(shape, dtype)))

    def function(gradients: list[Any]) -> Any:
        pairs = list(zip(gradients, variables, strict=True))
        clipped = driver.names.clip_gradients_by_norm(pairs, limit)
        record = SummaryRecord()
        driver.names.post_process_gradients(
            pairs, [GLOBAL_NORM], 0.1, None, None, recorder=record
        )
        return [[g for g, _ in clipped], record.scalars[GLOBAL_NORM]]

    clipped, norm = driver.compile(function)(tensors)
    return {**flat_list("gradients", clipped), GLOBAL_NORM: np.asarray(norm)}


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

    results = driver.compile(function)([np.array(1, np.float32)])
    return flat_list("gradients", results)
