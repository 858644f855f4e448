"""Family ``optimize_loss``: the whole step, from the loss to the counter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
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
from harness.parity.step_cases import INPUTS, INSTANCE, PASSED_ON, inputs_of_refused
from harness.parity.trajectory import recorded_state
from lockstep import registry
from lockstep.interface import Array, Gradient
from lockstep.optimizers import OPTIMIZERS, OptimizerSpec
from lockstep.reference import OPTIMIZER_CLS_NAMES

__all__ = ["FAMILIES", "KINDS", "expectations", "replay"]

FAMILIES = ("optimize_loss",)

State = Mapping[str, Array]

TRAINED = frozenset(
    {
        "plain",
        "clip",
        "larc_clip",
        "larc_scale",
        "mixed_static",
        "mixed_backoff",
        "mixed_logmax",
        "mixed_backoff_clip_overflow",
        "iter_size",
        "iter_size_irregular",
        "iter_size_without_horovod",
        "iter_size_mixed",
        "iter_size_mixed_backoff",
        "horovod_plain",
        "sparse",
        "sparse_clip",
        "sparse_larc",
        "absent",
        "var_list",
        "float16",
        "loss_scaling_ignored",
        "larc_zero_variable",
        "clip_nonfinite",
    }
)
REFUSED = frozenset(
    {
        "error_unknown_optimizer",
        "error_clip_and_larc",
        "error_summaries",
        "error_missing_argument",
        "error_adamw_without_decay",
        "error_optimizer_instance",
        "error_scaling_int",
        "error_scaling_name",
        "error_iter_size_without_placeholder",
        "error_iter_size_sparse",
        "error_iter_size_absent",
        "error_absent_default_summaries",
        "error_clip_scalar",
    }
)
KINDS = TRAINED | REFUSED

COUNTERS = ("iteration", "last_overflow_iteration")


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Build the step once and run it with the recorded gradients until it fails."""
    case.require_known(INPUTS, ("steps", "raises"))
    if case.kind in REFUSED:
        refused = Case(
            case.family, case.id, case.kind, inputs_of_refused(case), case.expected
        )
        for _ in _Optimized(refused, driver).rates():
            pass
        return
    with np.errstate(all="ignore"):
        yield from _Optimized(case, driver).run()


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded state after each step, with its learning rate."""
    variables = {v.name: v for v in case.variables}
    mixed = case.inputs["dtype"] == "mixed"
    wide = {name: _in_float32(v) if mixed else v for name, v in variables.items()}
    for step in case.expected["steps"]:
        yield _recorded(dict(step), variables, wide)


class _Optimized:
    """The variables of one case on one backend, and the step that trains them."""

    def __init__(self, case: Case, driver: Driver) -> None:
        self.case, self.driver = case, driver
        self.recorded = _trained(case)
        self.variables = [driver.variable(v.name, v.value) for v in case.variables]
        named = dict(zip([v.name for v in case.variables], self.variables, strict=True))
        self.trained = [named[v.name] for v in self.recorded]
        self.named = named
        chosen = case.inputs["lr_policy"]
        # In both modes the original's policies: they have their own cases.
        has_strict = registry.find(driver.backend).has_strict
        policies = registry.load(driver.backend, has_strict).lr_policies
        self.policy = getattr(policies, chosen["name"])
        if not has_strict:
            self.policy = partial(self.policy, strict=True)
        self.policy_args = chosen["args"]
        self.rate: Any = None
        self.made: Any = None

    def run(self) -> Iterator[State]:
        """Yield the state after each step. A step that fails is the last one."""
        ends = [step.get("raises") for step in self.case.expected["steps"]]
        end = ends[-1]
        ending = self.driver.expects(end) if end else ()
        try:
            for rate in self.rates():
                yield {**self.state(), **self.used(rate)}
        except ending:
            yield {"raises": np.array(end), **self.used(self.rate_now())}

    def rates(self) -> Iterator[Any]:
        """Run all steps and yield the learning rate of each."""
        train = self.driver.optimized(self.optimize, self.loss_of)
        compiled = self.driver.compile(lambda arguments: self.results(train, arguments))
        flags = self.case.inputs.get("skip_update")
        for position, gradients in enumerate(self.steps()):
            flag = [] if flags is None else [np.asarray(flags[position])]
            yield compiled([*gradients, *flag])[1]

    def steps(self) -> list[list[Gradient]]:
        """Return the gradients of the trained variables for each step."""
        everything = self.case.variables
        return [
            [
                gradient(g, v)
                for g, v in zip(step, everything, strict=True)
                if v.name in {trained.name for trained in self.recorded}
            ]
            for step in self.case.inputs["gradients"]
        ]

    def results(self, train: Callable[..., Any], arguments: list[Any]) -> list[Any]:
        """Run a step. Return the loss, which a graph must run, and the rate."""
        count = len(self.trained)
        loss = train(arguments[:count], *arguments[count:])
        return [loss, self.rate]

    def loss_of(self, gradients: Sequence[Any]) -> Any:
        """Return the loss with these gradients."""
        return self.driver.linear_loss(self.trained, gradients)

    def optimize(self, loss: Any, skip_update: Any) -> Any:
        """Call ``optimize_loss`` with the arguments of the case."""
        inputs = self.case.inputs
        options = {name: inputs[name] for name in PASSED_ON if name in inputs}
        if self.case.kind == "absent":
            options["summaries"] = []
        if "skip_update" in inputs:
            options["skip_update_ph"] = skip_update
        self.made = self.driver.names.optimize_loss(
            loss,
            self.optimizer(inputs["optimizer"]),
            dict(inputs["optimizer_params"]),
            self.rate_at,
            var_list=self.trained,
            **options,
        )
        return self.made

    def optimizer(self, name: str) -> Any:
        """Return the optimizer of the case: a name, a class or an instance."""
        if name == INSTANCE:
            return self.driver.optimizer("Adam", {}, self.trained)
        if not name.startswith("class:"):
            return name
        class_name = name.removeprefix("class:")
        class_name = (
            OPTIMIZERS[class_name].class_name
            if class_name in OPTIMIZERS
            else class_name
        )
        return getattr(self.driver.names, class_name)

    def rate_at(self, global_step: Any) -> Any:
        """Return the rate at a step and store it."""
        self.rate = self.policy(global_step, **self.policy_args)
        return self.rate

    def rate_now(self) -> Any:
        """Return the rate at the current number of applied steps."""
        applied = int(self.driver.read(self.driver.step_object(self.made).global_step))
        return self.driver.read(self.policy(applied, **self.policy_args))

    def used(self, rate: Any) -> State:
        """Return a rate as a quantity."""
        return {"learning_rate_used": np.asarray(rate, np.float32)}

    def state(self) -> State:
        """Read everything that the step can change."""
        driver, step = self.driver, self.driver.step_object(self.made)
        state = {"global_step": np.asarray(driver.read(step.global_step), np.int64)}
        for name, variable in self.named.items():
            state[f"variables/{name}"] = driver.read(variable)
        for position, variable in enumerate(self.trained):
            recorded = self.recorded[position]
            state |= self.state_of(step, recorded, variable)
            if "skip_update" in self.case.inputs:
                total = step.accumulators[position]
                nothing = np.zeros_like(self.wide(recorded).value)
                key = f"gradient_accumulators/{recorded.name}"
                state[key] = nothing if total is None else driver.read(total)
        for name, scalar in driver.shared(step.optimizer).items():
            state[f"non_slots/{name}"] = np.asarray(scalar, np.float32)
        if step.scaler is not None:
            for name, value in step.scaler.state.items():
                state[f"scaler/{name}"] = _scaler_entry(name, driver.read(value))
        return state

    def wide(self, recorded: Variable) -> Variable:
        """Return a variable with the dtype of its slots and sums: its master's."""
        mixed = self.case.inputs["dtype"] == "mixed"
        return _in_float32(recorded) if mixed else recorded

    def state_of(self, step: Any, recorded: Variable, variable: Any) -> State:
        """Read the slots of one variable, and its master."""
        state, optimizer = {}, step.optimizer
        master = variable
        if self.case.inputs["dtype"] == "mixed" and str(recorded.dtype) in (
            "float16",
            "bfloat16",
        ):
            master = optimizer.master(variable)
            state[f"masters/{recorded.name}"] = self.driver.read(master)
        spec, bound = _spec(self.case)
        wide = self.wide(recorded)
        for slot in spec.active_slots(bound):
            value = self.driver.slot(optimizer, master, slot.name)
            start = np.full(wide.shape, spec.initial_value(slot, bound), wide.dtype)
            key = f"slots/{slot.name}/{recorded.name}"
            state[key] = start if value is None else value
        return state


def _trained(case: Case) -> list[Variable]:
    """Return the variables of ``var_list``, in its order."""
    named = {v.name: v for v in case.variables}
    return [named[name] for name in case.inputs.get("trainable", named)]


def _spec(case: Case) -> tuple[OptimizerSpec, Mapping[str, Any]]:
    """Return the slots of a case's optimizer. NovoGrad has those of Momentum."""
    name, arguments = case.optimizer, dict(case.inputs["optimizer_params"])
    if name == "class:NovoGrad":
        spec, arguments = OPTIMIZERS["Momentum"], {"momentum": 0.0}
    elif name in OPTIMIZER_CLS_NAMES:
        spec = OPTIMIZERS[OPTIMIZER_CLS_NAMES[name].__name__.removesuffix("Optimizer")]
    elif name.removeprefix("class:") in OPTIMIZERS:
        spec = OPTIMIZERS[name.removeprefix("class:")]
    else:
        raise CannotInterpretError(f"the optimizer {name!r}")
    known = {parameter.name for parameter in spec.parameters}
    arguments |= {"learning_rate": 0.1} if "learning_rate" in known else {}
    return spec, spec.bind((), arguments)


def _in_float32(variable: Variable) -> Variable:
    """Return a variable with the initial value of its master."""
    value = variable.value.astype(np.float32)
    return Variable(variable.name, value, variable.shape)


def _recorded(
    step: dict[str, Any], variables: Mapping[str, Variable], wide: Mapping[str, Any]
) -> State:
    """Flatten one recorded state."""
    state: dict[str, Array] = {}
    state["learning_rate_used"] = array(step.pop("learning_rate_used"), "float32")
    if "raises" in step:
        return {**state, "raises": np.array(step["raises"])}
    for key in ("masters", "gradient_accumulators"):
        for name, value in step.pop(key, {}).items():
            dtype = str(wide[name].dtype)
            state[f"{key}/{name}"] = array(value, dtype, wide[name].shape)
    for name, value in step.pop("scaler", {}).items():
        state[f"scaler/{name}"] = _scaler_entry(name, value)
    model = {"variables": step.pop("variables")}
    return {**state, **recorded_state(step, wide), **recorded_state(model, variables)}


def _scaler_entry(name: str, value: Any) -> Array:
    dtype = "int64" if name in COUNTERS else "float32"
    return array(np.asarray(value).tolist(), dtype)
