"""What row clipping builds: traces, compiled steps, operations of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep.tf.tests.clipping.models import DENSE, VALUES, ZERO
from lockstep.tf.tests.trajectory import RULES

v1 = tf.compat.v1


@pytest.mark.sample(5)
@pytest.mark.parametrize("rule", ["Momentum", "Adam"])
@pytest.mark.parametrize("outer", [False, True], ids=["clip", "multitask(clip)"])
def test_nothing_is_traced_after_the_second_call(
    rule: str, names: Any, outer: bool
) -> None:
    w = tf.Variable(VALUES[1])
    base = getattr(names, f"{rule}Optimizer")(**RULES[rule])
    opt = names.VariableClippingOptimizer(base, {w.ref(): [1]}, 1.0)
    opt = names.MultitaskOptimizerWrapper(opt) if outer else opt
    traces = []

    @tf.function(reduce_retracing=False)
    def step(gradient: tf.Tensor) -> None:
        traces.append(1)
        opt.apply_gradients([(gradient, w)])

    for number, gradients in enumerate([*DENSE, *DENSE, ZERO]):
        step(tf.constant(gradients[1]))
        if number == 1:
            traced = len(traces)
    assert len(traces) == traced <= 2
    assert not set(vars(base)) & {"_lockstep_skips"}


def test_a_jit_compiled_step_clips(names: Any) -> None:
    w = tf.Variable([[3.0, 4.0], [0.25, 0.5]])
    base = names.GradientDescentOptimizer(1.0)
    opt = names.VariableClippingOptimizer(base, {w.ref(): [1]}, 2.5)
    step = tf.function(
        lambda g: opt.apply_gradients([(g, w)]) and None,
        autograph=False,
        jit_compile=True,
    )
    step(tf.zeros([2, 2]))
    assert w.numpy() == pytest.approx(np.float32([[1.5, 2.0], [0.25, 0.5]]))


def operations(graph: tf.Graph) -> list[tf.Operation]:
    """Return the operations of a graph and of the functions that it calls."""
    found = list(graph.get_operations())
    for function in graph._functions.values():
        inner = getattr(function, "graph", None)
        found += operations(inner) if inner is not None else []
    return found


@pytest.mark.parametrize("nest", ["clip", "multitask(clip)", "clip(multitask)"])
@pytest.mark.parametrize("rule", ["GradientDescent", "Momentum"])
def test_no_operation_of_a_sparse_step_is_as_large_as_the_vocabulary(
    names: Any, rule: str, nest: str
) -> None:
    vocabulary = 12345
    with tf.Graph().as_default() as graph:
        w = v1.Variable(tf.zeros([vocabulary, 3]), use_resource=True)
        opt = getattr(names, f"{rule}Optimizer")(**RULES[rule])
        opt._create_slots([w])
        before = len(graph.get_operations())
        if nest == "clip(multitask)":
            opt = names.MultitaskOptimizerWrapper(opt)
        opt = names.VariableClippingOptimizer(opt, {w: [1]}, 1.0)
        if nest == "multitask(clip)":
            opt = names.MultitaskOptimizerWrapper(opt)
        values = v1.placeholder(tf.float32, [None, 3])
        indices = v1.placeholder(tf.int64, [None])
        opt.apply_gradients([(tf.IndexedSlices(values, indices), w)])
        made = operations(graph)[before:]
    types = {op.type for op in made}
    assert "ResourceGather" in types
    assert types & {"ResourceScatterUpdate", "ResourceScatterSub"}
    for op in made:
        for tensor in [*op.inputs, *op.outputs]:
            size = tensor.shape.num_elements() if tensor.shape.rank else 0
            assert (size or 0) < vocabulary, f"{op.type} {op.name}"


def test_one_train_op_updates_and_clips(names: Any) -> None:
    with tf.Graph().as_default():
        w = v1.get_variable("w", initializer=tf.constant([[3.0, 4.0]]))
        counter = v1.train.get_or_create_global_step()
        base = names.AdamOptimizer(0.5)
        opt = names.VariableClippingOptimizer(base, {w: [1]}, 1.0)
        update = opt.minimize(tf.reduce_sum(w**2), global_step=counter)
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [update]
        assert update.name == "VariableClipping"
        saved = sorted(v.op.name for v in v1.global_variables())
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(v1.get_collection(v1.GraphKeys.TRAIN_OP))
            assert session.run(counter) == 1
            assert np.linalg.norm(session.run(w)) == pytest.approx(1)
    powers = ["VariableClipping/beta1_power", "VariableClipping/beta2_power"]
    assert saved == [*powers, "global_step", "w", "w/Adam", "w/Adam_1"]
