"""Float32 masters in graphs, in old code, and in a fresh process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as lockstep_tf
from lockstep.tf import AdamOptimizer, MixedPrecisionOptimizerWrapper
from lockstep.tf import strict as lockstep_strict

v1 = tf.compat.v1


def test_a_graph_has_the_names_and_collections_of_the_original() -> None:
    def collected(module: Any, times: int) -> list[list[str]]:
        with tf.Graph().as_default():
            w = v1.get_variable(
                "net/w",
                initializer=tf.ones([2], tf.float16),
                regularizer=module.mp_regularizer_wrapper(tf.nn.l2_loss),
            )
            wrapper = module.MixedPrecisionOptimizerWrapper(
                module.MomentumOptimizer(0.1, 0.9), module.AutomaticLossScaler()
            )
            for _ in range(times):
                loss = tf.reduce_sum(tf.cast(w, tf.float32))
                wrapper.minimize(loss)
            keys = ("FP32_MASTER_COPIES", v1.GraphKeys.TRAINABLE_VARIABLES)
            found = [[v.op.name for v in v1.get_collection(key)] for key in keys]
            penalties = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
            functions = v1.get_collection("REGULARIZATION_FUNCTIONS")
            counts = [str(len(penalties)), str(len(functions))]
            return [*found, counts]

    first, second = "FP32-master-copy/net/w", "FP32-master-copy_1/net/w"
    strict = collected(lockstep_strict, 2)
    assert strict == [[first, second], ["net/w"], ["2", "1"]]
    assert collected(lockstep_tf, 2) == [[first], ["net/w"], ["0", "1"]]


def test_a_graph_initializes_masters_at_the_drawn_values() -> None:
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.Variable(tf.cast(tf.random.normal([50]), tf.float16), name="w")
        wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer())
        master = wrapper.master(w)
        session.run(v1.global_variables_initializer())
        model, copy = session.run([w, master])
    assert copy.tobytes() == model.astype(np.float32).tobytes()


RESUME = """
from lockstep.tf import (
    AdamOptimizer, AutomaticLossScaler, MixedPrecisionOptimizerWrapper
)
way, path, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
in_graph = way.startswith("graph")
stop = 5
random = np.random.default_rng(3)
gradients = random.normal(size=(9, 2, 5)).astype(np.float32)
gradients[3, 0, 2] = np.inf
if in_graph:
    v1.disable_eager_execution()
a = v1.Variable(np.ones(5, np.float16), name="w", use_resource=True)
b = v1.Variable(np.zeros(5, np.float16), name="v", use_resource=True)
counter = v1.Variable(np.int64(0), name="counter", use_resource=True)
scaler = AutomaticLossScaler("Backoff", {"step_window": 2})
wrapper = MixedPrecisionOptimizerWrapper(AdamOptimizer(0.001), scaler, clip_norm=2.0)
checkpoint = tf.train.Checkpoint(a=a, b=b, counter=counter, optimizer=wrapper)

def train(x):
    def loss():
        return tf.reduce_sum(tf.cast(tf.stack([a, b]), tf.float32) * x)
    return wrapper.minimize(loss, counter, [b, a] if first else [a, b])

def state():
    owned = [wrapper.master(v) for v in (a, b)]
    slots = [wrapper.get_slot(v, name) for v in (a, b) for name in ("m", "v")]
    powers = sorted(wrapper.inner_optimizer._non_slot_dict)
    powers = [wrapper.inner_optimizer._non_slot_dict[key] for key in powers]
    return [a, b, counter, *owned, *slots, *powers, *scaler.state.values()]

if in_graph:
    x = v1.placeholder(tf.float32, [2, 5])
    train_op = train(x)
    session = v1.Session()
    session.run(v1.global_variables_initializer())
    saver = v1.train.Saver()
    if first and way == "graph_saver":
        saver.restore(session, path)
    elif first:
        status = checkpoint.read(path)
        status.assert_existing_objects_matched().run_restore_ops(session)
    for k in range(first, 9):
        if k == stop and not first:
            if way == "graph_saver":
                saver.save(session, path)
            else:
                with session.as_default():
                    checkpoint.write(path)
        session.run(train_op, {x: gradients[k]})
    parts = session.run(state())
else:
    step = train
    if way == "function":
        step = tf.function(lambda x: train(x) and None, autograph=False)
    if way == "saver":
        wrapper.create_slots([a, b])
        saver = v1.train.Saver([a, b, counter, *wrapper.variables()])
    if first and way == "saver":
        saver.restore(None, path)
    elif first:
        checkpoint.read(path)
    for k in range(first, 9):
        if k == stop and not first:
            saver.save(None, path) if way == "saver" else checkpoint.write(path)
        step(tf.constant(gradients[k]))
    parts = state()
print(" ".join(np.asarray(part).tobytes().hex() for part in parts))
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("way", ["eager", "function", "saver", "graph", "graph_saver"])
def test_a_fresh_process_goes_on_to_the_bit(
    shared: Callable[..., str], tmp_path: Path, way: str
) -> None:
    kind = "graph" if way.startswith("graph") else "eager"
    whole = shared(f"{kind}, first", RESUME, way, tmp_path / "stopped", 0)
    assert shared(f"{kind}, second", RESUME, way, tmp_path / "stopped", 5) == whole


OLD_CODE = """
v1.disable_v2_behavior()
from lockstep.tf{module} import (
    AdamOptimizer, AutomaticLossScaler, MixedPrecisionOptimizerWrapper,
    mp_regularizer_wrapper,
)
x = v1.placeholder(tf.float32, [2])
w = v1.get_variable(
    "w", initializer=tf.constant([1.0, 2.0], tf.float16),
    regularizer=mp_regularizer_wrapper(tf.nn.l2_loss),
)
assert w.dtype != w.dtype.base_dtype, "old code has reference variables"
counter = v1.train.get_or_create_global_step()
opt = MixedPrecisionOptimizerWrapper(AdamOptimizer(0.125), AutomaticLossScaler())
loss = tf.reduce_sum(tf.cast(w, tf.float32) * x)
train_op = opt.apply_gradients(opt.compute_gradients(loss), counter)
assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    session.run(train_op, {{x: [1.0, -3.0]}})
    session.run(train_op, {{x: [np.inf, 1.0]}})
    print(session.run([w, opt.master(w), counter]))
print(sorted(v.op.name for v in v1.global_variables() if "/" in v.op.name))
"""


@pytest.mark.parametrize("module", ["", ".strict"], ids=["default", "strict"])
def test_old_code_with_reference_variables_runs(
    shared: Callable[..., str], module: str
) -> None:
    values, names = shared("v1", OLD_CODE.format(module=module)).splitlines()[-2:]
    assert "0.875" in values and "2.125" in values and values.endswith("int64(1)]")
    master = "FP32-master-copy/w"
    wanted = [master, f"{master}/Adam", f"{master}/Adam_1"]
    powers = ["cond_1/beta1_power", "cond_1/beta2_power"] if module else []
    assert names == str(wanted + powers)
