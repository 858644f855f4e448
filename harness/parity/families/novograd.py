"""Family ``novograd``: OpenSeq2Seq's NovoGrad, whose second moment is never stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace as changed
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State, array
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import Training, recorded_trajectory

FAMILIES = ("novograd",)
FIRST, SECOND = "first_call_gradient", "second_call_gradient"
INPUTS = ("args", "variables", "gradients", FIRST, SECOND, "run", "what")
EXPECTED = ("steps", "raises")

AS: Mapping[str, Callable[[list[Any]], Any]] = {
    "iterator": iter,
    "tuple": tuple,
    "absent": lambda pairs: [(None, variable) for _, variable in pairs],
    "float16": list,
    "second_instance": list,
}
"""Kind of error -> how the pairs are passed."""

expectations = recorded_trajectory


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Apply the gradients, or do what the original rejects."""
    if case.kind in AS:
        yield from _replay_refusal(case, driver)
    elif SECOND in case.inputs:
        yield from _replay_second_call(case, driver)
    else:
        training = Training(_with_optimizer(case), driver)
        yield from training.run(training.base)


def _with_optimizer(case: Case, **inputs: Any) -> Case:
    """Return the case with the optimizer in the form of the other families."""
    optimizer = {"name": "NovoGrad", "args": case.inputs.get("args", {})}
    return changed(case, inputs={**case.inputs, "optimizer": optimizer, **inputs})


def _replay_second_call(case: Case, driver: Driver) -> Iterator[State]:
    """Build two updates of one variable with the same object; run only the second."""
    if case.inputs["run"] != "second only" or len(case.variables) != 1:
        raise CannotInterpretError(f"run {case.inputs['run']!r}")
    steps = [[case.inputs[SECOND]]]
    training = Training(_with_optimizer(case, gradients=steps), driver)
    (recorded,), (variable,) = case.variables, training.variables
    built = array(case.inputs[FIRST], str(recorded.dtype), recorded.shape)
    training.base.apply_gradients([(built, variable)])
    yield from training.run(training.base)


def _replay_refusal(case: Case, driver: Driver) -> Iterator[State]:
    """Apply once, to the default variable of error cases."""
    dtype = np.float16 if case.kind == "float16" else np.float32
    variable = driver.variable("w", np.array([1, 2], dtype))
    instances = 2 if case.kind == "second_instance" else 1
    optimizers = [
        driver.optimizer("NovoGrad", {}, [variable]) for _ in range(instances)
    ]

    def apply(gradients: list[Any]) -> list[Any]:
        return [
            optimizer.apply_gradients(AS[case.kind]([(gradients[0], variable)]))
            for optimizer in optimizers
        ]

    driver.compile(apply)([np.ones(2, dtype)])
    yield {}
