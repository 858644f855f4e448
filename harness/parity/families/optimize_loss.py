"""Family ``optimize_loss``: the whole step, from the loss to the counter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace as changed
from functools import partial
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State, gradient
from harness.parity.drivers.protocol import Driver
from harness.parity.trajectory import (
    Rule,
    has_master,
    in_float32,
    recorded_state,
    scalar,
    scalars,
    slots_of,
)
from lockstep import registry
from lockstep.interface import Gradient
from lockstep.optimizers import OPTIMIZERS
from lockstep.reference import OPTIMIZER_CLS_NAMES

FAMILIES = ("optimize_loss",)
PASSED_ON = (
    "dtype clip_gradients larc_params loss_scaling loss_scaling_params on_horovod "
    "iter_size summaries"
).split()
"""Arguments that are passed as recorded."""
INPUTS = (
    *PASSED_ON,
    *"optimizer optimizer_params lr_policy variables gradients horovod_size".split(),
    *"skip_update trainable what".split(),
)
EXPECTED = ("steps", "raises")
USED = "learning_rate_used"

# Inputs with which error cases that omit them were recorded: see FORMAT.md.
ASSUMED: Mapping[str, Any] = {
    "optimizer": "SGD",
    "optimizer_params": {},
    "lr_policy": {"name": "fixed_lr", "args": {"learning_rate": 0.1}},
    "dtype": "float32",
    "variables": [{"name": "w", "dtype": "float32", "shape": [2], "value": [1, 2]}],
    "gradients": [[[1, 1]]],
}


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Build the step once and run it with the recorded gradients until it fails."""
    if "what" in case.inputs:
        refused = changed(case, inputs=_inputs_of_refused(case))
        for _ in _Optimized(refused, driver).rates():
            pass
        return
    with np.errstate(all="ignore"):
        yield from _Optimized(case, driver).run()


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded state after each step, with its learning rate."""
    variables = {v.name: v for v in case.variables}
    mixed = case.inputs["dtype"] == "mixed"
    wide = {name: in_float32(v) if mixed else v for name, v in variables.items()}
    for step in case.expected["steps"]:
        yield recorded_state(step, variables, wide)


class _Optimized:
    """The variables of one case on one backend, and the step that trains them."""

    def __init__(self, case: Case, driver: Driver) -> None:
        self.case, self.driver, self.inputs = case, driver, case.inputs
        self.mixed = case.inputs["dtype"] == "mixed"
        everything = {v.name: v for v in case.variables}
        self.named = {
            name: driver.variable(name, v.value) for name, v in everything.items()
        }
        names = case.inputs.get("trainable", list(everything))
        self.recorded = [everything[name] for name in names]
        self.trained = [self.named[name] for name in names]
        # In both modes the original's policies: they have their own cases.
        has_strict = registry.find(driver.backend).has_strict
        policies = registry.load(driver.backend, has_strict).lr_policies
        policy = getattr(policies, case.inputs["lr_policy"]["name"])
        strict = {} if has_strict else {"strict": True}
        self.policy = partial(policy, **case.inputs["lr_policy"]["args"], **strict)
        self.rate: Any = None
        self.made: Any = None

    def run(self) -> Iterator[State]:
        """Yield the state after each step. A step that fails is the last one."""
        end = self.case.expected["steps"][-1].get("raises")
        ending = self.driver.expects(end) if end else ()
        try:
            for rate in self.rates():
                yield {**self.state(), USED: scalar(USED, rate)}
        except ending:
            rate = self.policy(int(self.driver.read(self.step().global_step)))
            used = scalar(USED, self.driver.read(rate))
            yield {"raises": np.array(end), USED: used}

    def rates(self) -> Iterator[Any]:
        """Run all steps and yield the learning rate of each."""
        driver, count = self.driver, len(self.trained)
        train = driver.optimized(
            self.optimize, lambda gradients: driver.linear_loss(self.trained, gradients)
        )

        def results(arguments: list[Any]) -> list[Any]:
            # A graph must run the loss.
            loss = train(arguments[:count], *arguments[count:])
            return [loss, self.rate]

        compiled = driver.compile(results)
        flags = self.inputs.get("skip_update")
        for position, gradients in enumerate(self.gradients()):
            flag = [] if flags is None else [np.asarray(flags[position])]
            yield compiled([*gradients, *flag])[1]

    def gradients(self) -> Iterator[list[Gradient]]:
        """Yield the gradients of the trained variables for each step."""
        trained = {variable.name for variable in self.recorded}
        for step in self.inputs["gradients"]:
            pairs = zip(step, self.case.variables, strict=True)
            yield [gradient(g, v) for g, v in pairs if v.name in trained]

    def optimize(self, loss: Any, skip_update: Any) -> Any:
        """Call ``optimize_loss`` with the arguments of the case."""
        options = {name: self.inputs[name] for name in PASSED_ON if name in self.inputs}
        if self.case.kind == "absent":
            options["summaries"] = []
        if "skip_update" in self.inputs:
            options["skip_update_ph"] = skip_update
        self.made = self.driver.names.optimize_loss(
            loss,
            self.optimizer(self.inputs["optimizer"]),
            dict(self.inputs["optimizer_params"]),
            self.rate_at,
            var_list=self.trained,
            **options,
        )
        return self.made

    def optimizer(self, name: str) -> Any:
        """Return the optimizer of the case: a name, a class or an instance."""
        if name == "an Adam instance":
            return self.driver.optimizer("Adam", {}, self.trained)
        if not name.startswith("class:"):
            return name
        name = name.removeprefix("class:")
        name = OPTIMIZERS[name].class_name if name in OPTIMIZERS else name
        return getattr(self.driver.names, name)

    def rate_at(self, global_step: Any) -> Any:
        """Return the rate at a step and store it."""
        self.rate = self.policy(global_step)
        return self.rate

    def state(self) -> State:
        """Read everything that the step can change."""
        driver, step = self.driver, self.step()
        state = {"global_step": scalar("global_step", driver.read(step.global_step))}
        for name, variable in self.named.items():
            state[f"variables/{name}"] = driver.read(variable)
        rule = _rule(self.case)
        for position, trained in enumerate(self.trained):
            recorded = self.recorded[position]
            if self.mixed and has_master(str(recorded.dtype)):
                trained = step.optimizer.master(trained)
                state[f"masters/{recorded.name}"] = driver.read(trained)
            # Slots and sums have the dtype of the master.
            wide = in_float32(recorded) if self.mixed else recorded
            state |= slots_of(driver, step.optimizer, rule, wide, trained)
            if "skip_update" in self.inputs:
                total = step.accumulators[position]
                zeros = np.zeros_like(wide.value)
                value = zeros if total is None else driver.read(total)
                state[f"gradient_accumulators/{recorded.name}"] = value
        state |= scalars("non_slots", driver.shared(step.optimizer))
        scaler = {} if step.scaler is None else step.scaler.state
        read = {name: driver.read(value) for name, value in scaler.items()}
        return state | scalars("scaler", read)

    def step(self) -> Any:
        """Return the training step, which in a graph is an attribute of the loss.

        It has ``optimizer``, ``global_step``, ``scaler`` (with ``state``, or None) and
        ``accumulators``: a list like ``var_list``, with None for missing ones.
        """
        return getattr(self.made, "training_step", self.made)


def _rule(case: Case) -> Rule:
    """Return the rule of a case's optimizer. NovoGrad has the slots of Momentum."""
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
    return Rule(spec, spec.bind((), arguments))


def _inputs_of_refused(case: Case) -> Mapping[str, Any]:
    """Return the inputs of an error case: ``what`` overrides them or names them."""
    what = dict(case.inputs["what"])
    inputs = {**ASSUMED, **{k: v for k, v in case.inputs.items() if k != "what"}}
    (variable,) = inputs["variables"][:1]
    if "variable_shape" in what:
        shape = what.pop("variable_shape")
        ones = np.ones(shape).tolist()
        inputs["variables"] = [{**variable, "shape": shape, "value": ones}]
        inputs["gradients"] = [[ones]]
    if "gradient" in what:
        inputs |= _with_gradient(what.pop("gradient"), inputs["variables"][0])
        inputs |= {"skip_update": [True]} if "iter_size" in what else {}
    for key in what:
        if key not in INPUTS:
            raise CannotInterpretError(f"the argument {key!r}")
    return {**inputs, **what}


def _with_gradient(spelled: Any, variable: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a gradient and a variable of the shape that it needs."""
    if spelled is None:
        return {"gradients": [[None]]}
    if spelled != "sparse, two rows":
        raise CannotInterpretError(f"the gradient {spelled!r}")
    rows = {"indices": [0, 1], "values": [[1, 1], [1, 1]], "dense_shape": [2, 2]}
    matrix = {**variable, "shape": [2, 2], "value": [[1, 2], [1, 2]]}
    return {"gradients": [[rows]], "variables": [matrix]}
