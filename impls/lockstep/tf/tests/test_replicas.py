"""Replicas of a MirroredStrategy train as one process with the joined batch does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from harness.tests.script_process import Request
from harness.tests.shared_processes import TWO_DEVICES, Processes
from lockstep.tf import GradientDescentOptimizer, MultitaskOptimizerWrapper

SCRIPT = Path(__file__).with_name("replica_steps.py")
KINDS = (
    "multitask",
    "novograd",
    "rows",
    "agn",
    "fixed",
    "dynamic",
    "masters",
    "backoff",
    "stack",
)
IN_GRAPHS = ("multitask", "rows", "dynamic", "masters", "stack")
"""The others differ in their rule only; AGN's getter makes the variables of a graph."""
CASES = [(k, m, n) for k in KINDS for m in ("eager", "function") for n in (1, 2)]
CASES += [(kind, "graph", count) for kind in IN_GRAPHS for count in (1, 2)]


# The stack has all wrappers.
PARAMETERS = [
    pytest.param(*case, marks=[pytest.mark.slow] * (case[0] != "stack"))
    for case in CASES
]

Results = dict[tuple[str, str, int], Any]


@pytest.fixture(scope="module")
def results(pytestconfig: pytest.Config, processes: Processes) -> Results:
    """Run the script once; logical CPUs have to be made before TensorFlow starts."""
    everything = "not slow" not in pytestconfig.getoption("markexpr")
    chosen = [case for case in CASES if everything or case[0] == "stack"]
    alone = dict.fromkeys((kind, mode, 0) for kind, mode, _ in chosen)
    request = Request(str(SCRIPT), [json.dumps([*alone, *chosen])])
    printed = processes.output_of(TWO_DEVICES, ["tensorflow"], request)
    lines = [json.loads(line) for line in printed.splitlines()]
    return {(kind, mode, count): result for kind, mode, count, result in lines}


@pytest.mark.parametrize(("kind", "mode", "count"), PARAMETERS)
def test_replicas_equal_one_process_with_the_joined_batch(
    kind: str, mode: str, count: int, results: Results
) -> None:
    state, reports = results[kind, mode, count]
    alone, told = results[kind, mode, 0]
    assert state == alone
    assert reports == told


@pytest.mark.slow
def test_the_steps_tell_wrappers_apart_from_doing_nothing(results: Results) -> None:
    kinds = ("multitask", "rows", "dynamic")
    reports = {kind: results[kind, "eager", 2][1] for kind in kinds}
    assert "all zero" in reports["multitask"][1]
    assert "not finite: shared" in reports["dynamic"][1]
    assert any("rows" in report for report in reports["rows"])
    state, _ = results["masters", "eager", 2]
    assert state["head"] != [0.5]


REFUSALS = """
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from lockstep import tf as ls
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    weight = tf.Variable([1.0], name="weight")
outside = tf.Variable([1.0], name="outside")
counter = tf.Variable(0, dtype=tf.int64, name="counter")

def refused(optimizer, variable=weight, count=None):
    def step():
        optimizer.apply_gradients([(tf.ones([1]), variable)], count)
    try:
        strategy.run(step)
        print("applied")
    except Exception as error:
        print(type(error).__name__, error)

sgd = v1.train.GradientDescentOptimizer(0.5)
refused(ls.MultitaskOptimizerWrapper(sgd), outside)
refused(ls.MultitaskOptimizerWrapper(sgd), count=counter)
refused(ls.MixedPrecisionLossScaleOptimizer(sgd, 8.0))
print(weight.numpy().tolist(), outside.numpy().tolist(), int(counter))
"""


def test_what_replicas_would_write_twice_is_refused(shared: Callable[..., str]) -> None:
    mirrored = "expected variables of which every replica has a copy, got"
    remedy = (
        "which has none; make model, optimizer and step counter inside "
        "strategy.scope()."
    )
    owner = "UnsupportedError MultitaskOptimizerWrapper:"
    assert shared(TWO_DEVICES, REFUSALS).splitlines() == [
        f"{owner} {mirrored} 'outside', {remedy}",
        f"{owner} {mirrored} 'counter', {remedy}",
        "UnsupportedError MixedPrecisionLossScaleOptimizer: "
        f"{mirrored} 'skipped_in_a_row', {remedy}",
        "[1.0] [1.0] 0",
    ]


ROWS_OF_ONE = """
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from lockstep import tf as ls
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    embedding, weight = tf.Variable([[1.0], [2.0], [3.0]]), tf.Variable([0.0])
    optimizer = ls.MultitaskOptimizerWrapper(ls.MomentumOptimizer(0.5, 0.5))

@tf.function
def step(indices):
    here = tf.distribute.get_replica_context().replica_id_in_sync_group
    first = tf.get_static_value(here) == 0
    rows = tf.IndexedSlices(tf.constant([[2.0], [2.0]]), indices) if first else None
    optimizer.apply_gradients([(rows, embedding), (tf.ones([1]), weight)])

for indices in ([0, 1], [1, 2]):
    strategy.run(step, args=(tf.constant(indices),))
for variable in (embedding, weight):
    for copy in strategy.experimental_local_results(variable):
        print(copy.numpy().tolist())
"""


def test_rows_of_one_replica_are_applied_on_all_and_no_others(
    shared: Callable[..., str],
) -> None:
    # The second step leaves row 0 alone, whose momentum would move it otherwise.
    expected = ["[[0.0], [-0.5], [2.0]]"] * 2 + ["[-2.5]"] * 2
    assert shared(TWO_DEVICES, ROWS_OF_ONE).splitlines() == expected


def test_a_single_replica_also_trains_variables_from_outside_of_its_scope() -> None:
    weight = tf.Variable([1.0])
    wrapper = MultitaskOptimizerWrapper(GradientDescentOptimizer(0.5))
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    strategy.run(lambda: wrapper.apply_gradients([(tf.ones([1]), weight)]))
    assert weight.numpy().tolist() == [0.5]
