"""Family ``multitask_clip``: ``clip_gradients_by_global_norm``, alone and applied."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.parity.cases import CannotInterpretError, Case, State, array
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import (
    Training,
    flat_list,
    lone_gradients,
    recorded_trajectory,
)

FAMILIES = ("multitask_clip",)
INPUTS = (
    "dtype dtypes gradients clip_norm clip_norm_omitted wrapper optimizer variables "
    "variable_kind"
).split()
EXPECTED = "clipped global_norm global_norm_dtype raises steps initial".split()


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Clip once, or clip and apply by the wrapper at every step."""
    if "optimizer" in case.inputs:
        yield from _clip_then_apply(case, driver)
    else:
        yield _clip(case, driver)


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded trajectory, or the one result of the function."""
    if "steps" in case.expected:
        yield from recorded_trajectory(case)
        return
    norm_dtype = case.expected["global_norm_dtype"]
    norm = array(case.expected["global_norm"], norm_dtype)
    clipped = lone_gradients(case.expected["clipped"], _dtypes(case))
    yield {"global_norm": norm, **flat_list("clipped", clipped)}


def _clip(case: Case, driver: Driver) -> State:
    options = {} if "clip_norm_omitted" in case.inputs else {"clip_norm": _limit(case)}

    def function(gradients: list[Any]) -> Any:
        pairs = [(g, f"variable {k}") for k, g in enumerate(gradients)]
        clipped, norm = driver.names.clip_gradients_by_global_norm(pairs, **options)
        return [[g for g, _ in clipped], norm]

    gradients = lone_gradients(case.inputs["gradients"], _dtypes(case))
    clipped, norm = driver.compile(function)(gradients)
    return {"global_norm": norm, **flat_list("clipped", clipped)}


def _clip_then_apply(case: Case, driver: Driver) -> Iterator[State]:
    if case.inputs.get("wrapper") != "MultitaskOptimizerWrapper":
        raise CannotInterpretError(f"the wrapper {case.inputs.get('wrapper')!r}")
    training = Training(case, driver)
    wrapper = driver.names.MultitaskOptimizerWrapper(training.base)

    def function(gradients: list[Any]) -> Mapping[str, Any]:
        pairs = zip(gradients, training.variables, strict=True)
        clipped, norm = driver.names.clip_gradients_by_global_norm(pairs, _limit(case))
        applied = wrapper.apply_gradients(clipped, global_step=training.counter)
        return {"global_norm": norm, "": applied}

    yield from training.run_function(wrapper, function)


def _limit(case: Case) -> float:
    return float(case.inputs["clip_norm"])


def _dtypes(case: Case) -> list[str]:
    """Return the dtype of each gradient."""
    alike = [case.inputs.get("dtype", "float32")] * len(case.inputs["gradients"])
    return case.inputs.get("dtypes") or alike
