"""Family ``variable_clipping``: the row-clipping wrapper, alone and in layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State
from harness.parity.drivers.protocol import Driver
from harness.parity.families.loss_scale import ASSUMED, loss_scaled, scale_state
from harness.parity.trajectory import Training, recorded_trajectory

FAMILIES = ("variable_clipping",)
INPUTS = (
    "optimizer layers variables gradients variable_kind loss_scale "
    "grads_and_vars_given_as dims dims_is"
).split()
EXPECTED = ("initial", "steps", "raises")

expectations = recorded_trajectory


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Build the layers from the inside out, and apply the gradients to them."""
    case = case.assuming(ASSUMED if "raises" in case.expected else {})
    training = Training(case, driver)
    optimizer = training.base
    scaled, outside = None, case.kind == "loss_scale_over_clip"
    if "loss_scale" in case.inputs and not outside:
        optimizer = scaled = loss_scaled(optimizer, case, driver)
    for layer in case.inputs.get("layers", [_bad_layer(case)]):
        dims, max_norm = layer["vars_to_clip_dims"], layer["max_norm"]
        optimizer = clipped(optimizer, dims, max_norm, training)
    if "loss_scale" in case.inputs and outside:
        optimizer = scaled = loss_scaled(optimizer, case, driver)
    given_as = case.inputs.get("grads_and_vars_given_as", "list")
    if given_as not in ("list", "one-shot iterator"):
        raise CannotInterpretError(f"pairs given as {given_as!r}")

    def apply(gradients: list[Any]) -> Mapping[str, Any]:
        pairs = list(zip(gradients, training.variables, strict=True))
        argument = pairs if given_as == "list" else iter(pairs)
        return {"": optimizer.apply_gradients(argument, global_step=training.counter)}

    with np.errstate(all="ignore"):
        for state in training.run_function(optimizer, apply):
            yield {**state, **(scale_state(scaled, driver) if scaled else {})}


def clipped(
    inner: Any, dims: Mapping[str, Any], max_norm: float, training: Training
) -> Any:
    """Wrap ``inner`` so that the variables with these names are clipped."""
    driver, recorded = training.driver, training.recorded
    pairs = zip(recorded, training.variables, strict=True)
    by_name = {variable.name: ours for variable, ours in pairs}
    listed = {driver.key(by_name[name]): axes for name, axes in dims.items()}
    return driver.names.VariableClippingOptimizer(inner, listed, max_norm)


def _bad_layer(case: Case) -> Mapping[str, Any]:
    """Return the layer of an error case, which lists its only variable."""
    name = case.inputs["variables"][0]["name"]
    axes = case.inputs.get("dims", [0])
    return {"vars_to_clip_dims": {name: axes}, "max_norm": 1.0}
