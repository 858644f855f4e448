"""Family ``agn``: workers that take turns, each with its own weights.

Quantities of the acting worker end with ``/local``, shared ones with ``/global``. The
first event also has the initial state of every worker, the last event the final state.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from harness.parity.cases import CannotInterpretError, Case, Variable, array, gradient
from harness.parity.drivers.protocol import Driver, Worker
from harness.parity.trajectory import of_variables, slots_of
from lockstep.interface import Array, Gradient
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

GRADIENTS: Mapping[str, list[Gradient]] = {
    "error_no_variables": [],
    "error_all_absent": [None],
    "error_unknown_variable": [np.ones((1, 2), np.float32)],
    "error_iterator": [np.ones((1, 2), np.float32)],
}
"""Kind of error -> the gradients that are applied."""

State = dict[str, Array]


def replay(case: Case, driver: Driver) -> Iterator[Mapping[str, Array]]:
    """Run the workers' steps in the order of the events."""
    if case.kind == "custom_getter":
        named = dict(map(_declared, case.inputs["variables"]))
        facts = driver.getter_facts(named)
        yield {name: np.array(fact) for name, fact in facts.items()}
    elif case.kind in GRADIENTS:
        _provoke(case.kind, driver)
    else:
        yield from _with_ends(*_Training(case, driver).run())


def expectations(case: Case) -> Iterator[Mapping[str, Array]]:
    """Yield the recorded state after each event, or what the getter created."""
    if case.kind == "custom_getter":
        recorded = case.expected
        yield {name: np.array(recorded[key]) for key, name in FACTS.items()}
        return
    variables = {v.name: v for v in case.variables}

    def of_all(locals_: list[Any], when: str) -> State:
        state: State = {}
        for number, content in enumerate(locals_):
            state |= _recorded(content, variables, f"worker {number} {when}")
        return state

    start = _recorded(case.expected["initial"]["global"], variables, "global at first")
    start |= of_all(case.expected["initial"]["local"], "at first")
    states = [
        _recorded(event["local"], variables, "local")
        | _recorded(event["global"], variables, "global")
        for event in case.expected["events"]
    ]
    end = of_all(case.expected["final_local"], "at last")
    yield from _with_ends(start, states, end)


class _Training:
    """The workers of a case on a backend, each with its own optimizer."""

    def __init__(self, case: Case, driver: Driver) -> None:
        name, args = case.optimizer, case.inputs["optimizer"].get("args", {})
        if name not in OPTIMIZERS:
            raise CannotInterpretError(f"the optimizer {name!r}")
        count, period = case.inputs["num_workers"], case.inputs["communication_period"]
        self.driver, self.spec = driver, OPTIMIZERS[name]
        self.bound = self.spec.bind((), args)
        self.recorded, self.events = case.variables, case.inputs["events"]
        self.counter = driver.counter()
        named = {v.name: v.value for v in self.recorded}
        self.workers = driver.workers(named, count)
        self.optimizers = [
            _optimizer(driver, worker, (name, args), count, period)
            for worker in self.workers
        ]
        self.steps = [driver.compile(self._step(k)) for k in range(count)]

    def _step(self, number: int) -> Any:
        """Return a function of gradients that runs a training step of this worker."""
        worker, optimizer = self.workers[number], self.optimizers[number]

        def step(gradients: list[Any]) -> list[Any]:
            pairs = list(zip(gradients, worker.variables, strict=True))
            with worker.scope():
                return [optimizer.apply_gradients(pairs, global_step=self.counter)]

        return step

    def run(self) -> tuple[State, list[State], State]:
        """Return the initial state, the states after each event, and the final one."""
        for number in range(len(self.workers)):
            self.driver.compile(self._start(number))([])
        start = self.shared(0, "global at first") | self.all_workers("at first")
        states = []
        for event in self.events:
            number = event["worker"]
            pairs = zip(event["gradients"], self.recorded, strict=True)
            self.steps[number]([gradient(g, v) for g, v in pairs])
            states.append(self.own(number, "local") | self.shared(number, "global"))
        return start, states, self.all_workers("at last")

    def _start(self, number: int) -> Any:
        def start(gradients: list[Any]) -> list[Any]:
            with self.workers[number].scope():
                return [self.optimizers[number].get_init_op(number)]

        return start

    def all_workers(self, when: str) -> State:
        """Read the state of every worker."""
        state: State = {}
        for number in range(len(self.workers)):
            state |= self.own(number, f"worker {number} {when}")
        return state

    def own(self, number: int, where: str) -> State:
        """Read a worker's own state."""
        worker, optimizer = self.workers[number], self.optimizers[number]
        state = self._variables(number, worker.variables, where)
        for recorded, gathered in zip(self.recorded, worker.accumulators, strict=True):
            state[f"accumulators/{where}/{recorded.name}"] = self._read(gathered)
        counted = np.asarray(self._read(optimizer.local_step), np.int64)
        state[f"local_step/{where}"] = counted
        # The start of shared scalars, for an optimizer without a step yet.
        starts = (self.spec.shared or {}).items()
        shared = {name: self.bound[start] for name, start in starts}
        shared |= self.driver.shared(optimizer)
        for name, scalar in shared.items():
            state[f"non_slots/{name}/{where}"] = np.array(scalar, np.float32)
        return state

    def shared(self, number: int, where: str) -> State:
        """Read the shared state, by the optimizer of this worker."""
        state = self._variables(number, self.workers[number].centers, where)
        state[f"global_step/{where}"] = self._read(self.counter)
        return state

    def _variables(self, number: int, variables: Any, where: str) -> State:
        state: State = {}
        optimizer, rule = self.optimizers[number], (self.spec, self.bound, f"{where}/")
        for recorded, variable in zip(self.recorded, variables, strict=True):
            state[f"variables/{where}/{recorded.name}"] = self._read(variable)
            slots = slots_of(self.driver, optimizer, variable, recorded, *rule)
            state |= {name: np.array(value) for name, value in slots.items()}
        return state

    def _read(self, variable: Any) -> Array:
        """Read a copy, because a backend may change the array in its next step."""
        return np.array(self.driver.read(variable))


def _optimizer(
    driver: Driver, worker: Worker, rule: tuple[str, Any], count: int, period: int
) -> Any:
    """Create the optimizer of one worker around its own base optimizer."""
    with worker.scope():
        base = driver.optimizer(*rule, worker.variables)
        make = driver.names.AGNOptimizer
        return make(base, count, worker.getter, communication_period=period)


def _with_ends(start: State, states: list[State], end: State) -> Iterator[State]:
    """Add the initial state to the first state and the final one to the last."""
    for number, state in enumerate(states):
        first = start if number == 0 else {}
        last = end if number == len(states) - 1 else {}
        yield first | state | last


def _recorded(
    content: Mapping[str, Any], variables: Mapping[str, Variable], where: str
) -> State:
    """Flatten one recorded state, of a worker or shared."""
    state: State = {}
    for key, value in content.items():
        if key in ("variables", "accumulators"):
            state |= of_variables(f"{key}/{where}", value, variables)
        elif key == "slots":
            for slot, named in value.items():
                state |= of_variables(f"slots/{slot}/{where}", named, variables)
        elif key == "non_slots":
            for name, scalar in value.items():
                state[f"non_slots/{name}/{where}"] = array(scalar, "float32")
        elif key in ("local_step", "global_step"):
            state[f"{key}/{where}"] = array(value, "int64")
        else:
            raise CannotInterpretError(f"the recorded quantity {key!r}")
    return state


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

    driver.compile(act)(GRADIENTS[kind])
