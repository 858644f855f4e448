"""Family ``agn``: workers that take turns, each with its own weights.

Quantities of the acting worker end with ``/local``, shared ones with ``/global``. The
first event also has the initial state of every worker, the last event the final state.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, State, gradient
from harness.parity.drivers.protocol import Driver, Worker
from harness.parity.trajectory import (
    Rule,
    recorded_state,
    scalar,
    scalars,
    trained_state,
)
from lockstep.optimizers import OPTIMIZERS

FACTS: Mapping[str, str] = {
    "local_name": "name/local",
    "global_name": "name/global",
    "accumulator_name": "name/accumulator",
    "global_collection": "collection/global",
    "local_collection": "collection/local",
    "trainable_collection": "collection/trainable",
    "reuse_gives_same": "reuse_gives_same",
    "mapped_variables": "mapped_variables",
}
"""What a getter created: recorded key -> quantity."""

FAMILIES = ("agn",)
INPUTS = "optimizer num_workers communication_period variables events what".split()
EXPECTED = ("initial", "events", "final_local", "raises", *FACTS)

ERRORS = (
    "error_no_variables",
    "error_all_absent",
    "error_unknown_variable",
    "error_iterator",
)
"""Kinds of cases in which one worker with the variable w is refused."""


def replay(case: Case, driver: Driver) -> Iterator[State]:
    """Run the workers' steps in the order of the events."""
    if case.kind == "custom_getter":
        named = dict(map(_declared, case.inputs["variables"]))
        facts = driver.getter_facts(named)
        yield {name: np.array(fact) for name, fact in facts.items()}
    elif case.kind in ERRORS:
        _provoke(case.kind, driver)
    else:
        yield from _with_ends(*_Training(case, driver).run())


def expectations(case: Case) -> Iterator[State]:
    """Yield the recorded state after each event, or what the getter created."""
    if case.kind == "custom_getter":
        recorded = case.expected
        yield {name: np.array(recorded[key]) for key, name in FACTS.items()}
        return
    variables = {v.name: v for v in case.variables}
    expected = case.expected

    def placed(content: Mapping[str, Any], where: str) -> State:
        return _placed(recorded_state(content, variables), where)

    start = placed(expected["initial"]["global"], "global at first")
    for number, content in enumerate(expected["initial"]["local"]):
        start |= placed(content, f"worker {number} at first")
    states = [
        placed(event["local"], "local") | placed(event["global"], "global")
        for event in expected["events"]
    ]
    end: State = {}
    for number, content in enumerate(expected["final_local"]):
        end |= placed(content, f"worker {number} at last")
    yield from _with_ends(start, states, end)


class _Training:
    """The workers of a case on a backend, each with its own optimizer."""

    def __init__(self, case: Case, driver: Driver) -> None:
        name, args = case.optimizer, case.inputs["optimizer"].get("args", {})
        if name not in OPTIMIZERS:
            raise CannotInterpretError(f"the optimizer {name!r}")
        count, period = case.inputs["num_workers"], case.inputs["communication_period"]
        self.driver = driver
        self.rule = Rule(OPTIMIZERS[name], OPTIMIZERS[name].bind((), args))
        self.recorded, self.events = case.variables, case.inputs["events"]
        self.counter = driver.counter()
        named = {v.name: v.value for v in self.recorded}
        self.workers = driver.workers(named, count)
        self.optimizers = [
            _optimizer(driver, worker, (name, args), count, period)
            for worker in self.workers
        ]

    def run(self) -> tuple[State, list[State], State]:
        """Return the initial state, the states after each event, and the final one."""
        numbers = range(len(self.workers))
        for number in numbers:
            self._acting(number, self._start)([])
        start = self.shared(0, "global at first") | self.all_workers("at first")
        steps, states = [self._acting(number, self._apply) for number in numbers], []
        for event in self.events:
            number = event["worker"]
            pairs = zip(event["gradients"], self.recorded, strict=True)
            steps[number]([gradient(g, v) for g, v in pairs])
            states.append(self.own(number, "local") | self.shared(number, "global"))
        return start, states, self.all_workers("at last")

    def _acting(self, number: int, act: Callable[[int, list[Any]], Any]) -> Any:
        """Return a compiled function of gradients that acts in a worker's scope."""

        def function(gradients: list[Any]) -> list[Any]:
            with self.workers[number].scope():
                return [act(number, gradients)]

        return self.driver.compile(function)

    def _start(self, number: int, nothing: list[Any]) -> Any:
        return self.optimizers[number].get_init_op(number)

    def _apply(self, number: int, gradients: list[Any]) -> Any:
        pairs = list(zip(gradients, self.workers[number].variables, strict=True))
        return self.optimizers[number].apply_gradients(pairs, global_step=self.counter)

    def all_workers(self, when: str) -> State:
        """Read the state of every worker."""
        state: State = {}
        for number in range(len(self.workers)):
            state |= self.own(number, f"worker {number} {when}")
        return state

    def own(self, number: int, where: str) -> State:
        """Read a worker's own state."""
        worker, optimizer = self.workers[number], self.optimizers[number]
        state = self._trained(number, worker.variables)
        for recorded, gathered in zip(self.recorded, worker.accumulators, strict=True):
            state[f"accumulators/{recorded.name}"] = self.driver.read(gathered)
        state["local_step"] = scalar(
            "local_step", self.driver.read(optimizer.local_step)
        )
        # The start of shared scalars, for an optimizer without a step yet.
        starts = (self.rule.spec.shared or {}).items()
        shared = {name: self.rule.arguments[start] for name, start in starts}
        shared |= self.driver.shared(optimizer)
        return _placed({**state, **scalars("non_slots", shared)}, where)

    def shared(self, number: int, where: str) -> State:
        """Read the shared state, by the optimizer of this worker."""
        state = self._trained(number, self.workers[number].centers)
        return _placed({**state, "global_step": self.driver.read(self.counter)}, where)

    def _trained(self, number: int, variables: Sequence[Any]) -> State:
        rule = self.optimizers[number], self.rule
        return dict(trained_state(self.driver, *rule, self.recorded, variables))


def _optimizer(
    driver: Driver, worker: Worker, rule: tuple[str, Any], count: int, period: int
) -> Any:
    """Create the optimizer of one worker around its own base optimizer."""
    with worker.scope():
        base = driver.optimizer(*rule, worker.variables)
        make = driver.names.AGNOptimizer
        return make(base, count, worker.getter, communication_period=period)


def _placed(state: State, where: str) -> State:
    """Name a copy of a state ``KIND/where/VARIABLE``, or ``SCALAR/where``."""
    named = ("variables", "accumulators", "slots")
    placed: State = {}
    for key, value in state.items():
        kind, _, name = key.rpartition("/")
        of_variable = key.startswith(named)
        # A copy, because a backend may change the array in its next step.
        placed[f"{kind}/{where}/{name}" if of_variable else f"{key}/{where}"] = (
            np.array(value)
        )
    return placed


def _with_ends(start: State, states: list[State], end: State) -> Iterator[State]:
    """Add the initial state to the first state and the final one to the last."""
    states[0] = start | states[0]
    states[-1] = states[-1] | end
    yield from states


def _declared(text: str) -> tuple[str, bool]:
    """Parse a variable of kind ``custom_getter``, such as ``net/w (trainable)``."""
    match = re.fullmatch(r"(\S+) \((not )?trainable\)", text)
    if match is None:
        raise CannotInterpretError(f"the variable {text!r}")
    return match[1], match[2] is None


def _provoke(kind: str, driver: Driver) -> None:
    """Do what a case of kind ``error_*`` names. FORMAT.md describes the arguments."""
    named = {"w": np.array([[1, 2]], np.float32)}
    without = kind == "error_no_variables"
    (worker,) = driver.workers({} if without else named, 1)
    stranger = driver.variable("stranger", named["w"])
    if kind == "error_unknown_variable":
        worker = worker._replace(variables=[*worker.variables, stranger])
    rule = "GradientDescent", {"learning_rate": 0.1}
    optimizer = _optimizer(driver, worker, rule, 1, 10)

    def act(gradients: list[Any]) -> list[Any]:
        with worker.scope():
            if without:
                return [optimizer.get_init_op(0)]
            pairs = [(gradients[0], worker.variables[-1])]
            argument = iter(pairs) if kind == "error_iterator" else pairs
            return [optimizer.apply_gradients(argument)]

    ones = None if kind == "error_all_absent" else np.ones((1, 2), np.float32)
    driver.compile(act)([] if without else [ones])
