"""``optimize_loss`` in sessions: programs of OpenSeq2Seq, and what they look at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lockstep import tf as ls
from lockstep.tf import strict

v1 = tf.compat.v1

PROGRAM = """
if sys.argv[1] == "v1":
    v1.disable_v2_behavior()
else:
    v1.disable_eager_execution()
from lockstep.tf{module} import (
    OPTIMIZER_CLS_NAMES, OPTIMIZER_SUMMARIES, AutomaticLossScaler,
    MixedPrecisionOptimizerWrapper, get_regularization_loss, mp_regularizer_wrapper,
    optimize_loss, post_process_gradients, reduce_gradients, lr_policies,
    _clip_by_global_norm, _clip_gradients_by_norm,
)
assert set(OPTIMIZER_CLS_NAMES) == set(
    ["Adagrad", "Adam", "Ftrl", "Momentum", "RMSProp", "SGD", "AdamW"]
)
x = v1.placeholder(tf.float16, [None, 2])
skip = v1.placeholder(tf.bool, [])
l2 = mp_regularizer_wrapper(lambda weight: 0.25 * tf.nn.l2_loss(weight))
with v1.variable_scope("ForwardPass"):
    kernel = v1.get_variable(
        "kernel", dtype=tf.float16, regularizer=l2,
        initializer=tf.constant([[1.0], [2.0]], tf.float16),
    )
    bias = v1.get_variable("bias", initializer=tf.constant([0.5]), regularizer=l2)
    seen = v1.get_variable("seen", initializer=0, trainable=False)
v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, v1.assign_add(seen, 1).op)
output = tf.cast(tf.matmul(x, kernel), tf.float32) + bias
loss = tf.reduce_mean(output) + get_regularization_loss()
train_op = optimize_loss(
    loss=loss, optimizer="Momentum", optimizer_params={{"momentum": 0.5}},
    learning_rate_decay_fn=lambda step: lr_policies.poly_decay(
        step, learning_rate=0.5, decay_steps=4
    ),
    dtype="mixed", clip_gradients=4.0, loss_scaling="Backoff",
    loss_scaling_params={{"scale_max": 64.0}},
    summaries=OPTIMIZER_SUMMARIES, on_horovod=True, iter_size=2, skip_update_ph=skip,
)
step = v1.train.get_global_step()
names = sorted(v.op.name for v in v1.global_variables())
print([name for name in names if "Loss_Optimization/Forw" in name or "FP32" in name])
with v1.Session() as session:
    session.run(v1.global_variables_initializer())
    batches = [[1, 0], [3, 2], [1, float("inf")], [0, 0], [2, 2], [2, 4]]
    for position, batch in enumerate(batches):
        feed = {{x: [batch], skip: position % 2 == 0}}
        value = session.run(train_op, feed)
        print(position, kernel.eval().tolist(), bias.eval().tolist(), step.eval())
    print(seen.eval(), v1.get_collection(v1.GraphKeys.TRAIN_OP) != [])
    merged = v1.summary.merge_all()
    written = v1.Summary.FromString(session.run(merged, feed))
    print(sorted(entry.tag for entry in written.value))
"""

PRINTED = [
    # After two micro-batches the mean of (1, 0), (3, 2) is (2, 1); regularizers add a
    # quarter of the weights: the gradients are 2.25, 1.5 and 1.125.
    "0 [[1.0], [2.0]] [0.5] 0",
    "1 [[-0.125], [1.25]] [-0.0625] 1",
    "2 [[-0.125], [1.25]] [-0.0625] 1",
    "3 [[-0.125], [1.25]] [-0.0625] 1",
]


@pytest.mark.sample(1)
@pytest.mark.parametrize("module", ["", ".strict"], ids=["default", "strict"])
@pytest.mark.parametrize("behaviour", ["v2", "v1"])
def test_a_program_of_openseq2seq_runs_with_its_import_changed(
    shared: Callable[..., str], behaviour: str, module: str
) -> None:
    lines = shared(behaviour, PROGRAM.format(module=module), behaviour).splitlines()
    assert lines[0] == str(
        [
            "Loss_Optimization/FP32-master-copy/ForwardPass/kernel",
            "Loss_Optimization/ForwardPass/bias/Momentum",
            # TensorFlow 1's slots repeat the scope that they are made in.
            "Loss_Optimization/Loss_Optimization/FP32-master-copy/ForwardPass/kernel/"
            "Momentum",
        ]
    )
    assert lines[1:5] == PRINTED
    assert lines[6].endswith(" 2")
    assert lines[7] == "6 True"
    for tag in ("learning_rate", "loss_scale", "global_clipped_gradient_norm"):
        assert tag in lines[8]


def build(graph: tf.Graph, **options):
    """Build a step whose gradient is (3, 4) times a placeholder."""
    with graph.as_default():
        weight = v1.get_variable("weight", initializer=[6.0, 8.0])
        factor = v1.placeholder_with_default(1.0, [])
        loss = factor * tf.reduce_sum(weight * [3.0, 4.0])
        given = {"optimizer": "SGD", "optimizer_params": {}}
        train_op = ls.optimize_loss(
            loss=loss,
            learning_rate_decay_fn=lambda step: 0.5 / tf.cast(1 + step, tf.float32),
            **{**given, **options},
        )
        return train_op, factor, v1.summary.merge_all()


def told(session: v1.Session, fetches, feed) -> dict[str, float]:
    """Run a step; return the scalars, and the histograms' sums, that it tells."""
    _, text = session.run(fetches, feed)
    values = v1.Summary.FromString(text).value
    return {
        entry.tag: entry.histo.sum if entry.HasField("histo") else entry.simple_value
        for entry in values
    }


def test_all_eight_summaries_are_in_the_collection_under_the_tags_of_the_original():
    graph = tf.Graph()
    train_op, _, merged = build(
        graph,
        summaries=ls.OPTIMIZER_SUMMARIES,
        dtype="mixed",
        loss_scaling=8,
        larc_params={"larc_eta": 0.125},
    )
    with v1.Session(graph=graph) as session:
        session.run([v.initializer for v in graph.get_collection("variables")])
        found = told(session, [train_op, merged], {})
    ratio = 0.125 * 10 / (0.5 * 5)
    known = {tag: value for tag, value in found.items() if "variable" not in tag}
    assert known == {
        "learning_rate": 0.5,
        "loss_scale": 8.0,
        "global_gradient_norm": 5.0,
        "gradients/weight_0": 7.0,
        "gradient_norm/weight_0": 5.0,
        "larc_clip_on/weight_0": 1.0,
        "larc_grad_update/weight_0": pytest.approx(ratio),
        "larc_final_lr/weight_0": pytest.approx(0.5 * ratio),
    }
    assert {"variables/weight_0", "variable_norm/weight_0"} <= set(found)


def test_summaries_can_be_fetched_with_every_micro_batch() -> None:
    graph = tf.Graph()
    train_op, factor, merged = build(
        graph,
        summaries=["gradients", "global_gradient_norm", "gradient_norm"],
        clip_gradients=2.5,
        iter_size=2,
    )
    with v1.Session(graph=graph) as session:
        session.run([v.initializer for v in graph.get_collection("variables")])
        first = told(session, [train_op, merged], {})
        second = told(session, [train_op, merged], {factor: 3.0})
    assert np.isnan(first["global_gradient_norm"]) and first["gradients/weight_0"] == 0
    assert second == {
        "global_gradient_norm": 10.0,
        "global_clipped_gradient_norm": 2.5,
        "gradient_norm/weight_0": 2.5,
        "gradients/weight_0": 3.5,
    }


def test_histograms_of_a_skipped_step_are_masked() -> None:
    graph = tf.Graph()
    names = ["gradients", "loss_scale"]
    train_op, factor, merged = build(
        graph, summaries=names, dtype="mixed", loss_scaling="Backoff"
    )
    with v1.Session(graph=graph) as session:
        session.run([v.initializer for v in graph.get_collection("variables")])
        found = told(session, [train_op, merged], {factor: float("nan")})
        assert found == {"gradients/weight_0": 0.0, "loss_scale": 2.0**14}
        assert session.run(train_op.training_step.global_step) == 0
    # The scale is read before the step lowers it.
    _, scale = graph.get_operation_by_name("loss_scale").inputs
    assert scale.op in causes(train_op.op)


def test_the_pipeline_of_a_training_tensor_can_be_asked_for() -> None:
    train_op, _, _ = build(tf.Graph(), clip_gradients=1.0)
    assert ls.pipeline_of(train_op) == ("norm", "clip", "update")


def test_a_flag_is_not_needed_and_a_second_kind_of_loss_may_be_a_function() -> None:
    graph = tf.Graph()
    with graph.as_default():
        weight = v1.get_variable("weight", initializer=[1.0])
        train_op = ls.optimize_loss(
            lambda: tf.reduce_sum(weight), "SGD", {}, 0.5, iter_size=2
        )
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            found = [session.run([train_op, weight])[1] for _ in range(4)]
            assert session.run(weight) == 0.0
    assert len(found) == 4


def test_reference_variables_are_refused_where_their_updates_cannot_wait() -> None:
    with tf.Graph().as_default():
        weight = v1.get_variable("weight", initializer=[1.0], use_resource=False)
        with pytest.raises(ValueError, match="reference"):
            ls.optimize_loss(
                tf.reduce_sum(weight), "SGD", {}, lambda step: 0.5, iter_size=2
            )


def test_a_saver_carries_everything_on_to_the_bit(tmp_path: Path) -> None:
    options = {
        "optimizer": "Adam",
        "dtype": "mixed",
        "loss_scaling": "Backoff",
        "iter_size": 3,
    }
    ends = []
    for restored in (False, True):
        graph = tf.Graph()
        train_op, factor, _ = build(graph, **options)
        with graph.as_default(), v1.Session() as session:
            saver = v1.train.Saver()
            session.run(v1.global_variables_initializer())
            if restored:
                saver.restore(session, str(tmp_path / "model"))
            for k in range(0 if not restored else 4, 4):
                session.run(train_op, {factor: 1.0 + k})
            if not restored:
                saver.save(session, str(tmp_path / "model"))
            for k in range(4, 8):
                session.run(train_op, {factor: 1.0 + k})
            ends.append(session.run(graph.get_collection("variables")))
    for ours, theirs in zip(*ends, strict=True):
        assert np.array_equal(ours, theirs)


def causes(op: tf.Operation) -> set[tf.Operation]:
    """Return all operations that must have run before one."""
    found: set[tf.Operation] = set()
    waiting = [op]
    while waiting:
        one = waiting.pop()
        before = {*one.control_inputs, *(given.op for given in one.inputs)} - found
        found |= before
        waiting += before
    return found


def touching(weight: tf.Variable, found: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Return the operations among ``found`` that read a variable or write it."""
    target = getattr(weight, "handle", weight.op.outputs[0])
    return [op for op in found if any(given is target for given in op.inputs)]


@pytest.mark.sample(4)
@pytest.mark.parametrize("names", [ls, strict], ids=["default", "strict"])
@pytest.mark.parametrize("use_resource", [True, False], ids=["resource", "reference"])
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_a_weight_is_written_after_its_loss_and_its_norm(
    names: Any, use_resource: bool, sparse: bool
) -> None:
    with tf.Graph().as_default() as graph:
        start = v1.ones_initializer()
        w = v1.get_variable("w", [3, 2], None, start, use_resource=use_resource)
        # A sum: no gradient needs its value.
        loss = tf.reduce_sum(tf.gather(w, [0, 2]) if sparse else w)
        larc, params = {"larc_eta": 0.1}, {"weight_decay": 0.5}
        names.optimize_loss(loss, "AdamW", params, lambda _: 0.5, larc_params=larc)
        update = [op for op in graph.get_operations() if "update_w" in op.name]
        others = set(graph.get_operations()) - set(update)
    writing = re.compile("Assign|Scatter|Apply")
    written = [op for op in touching(w, update) if writing.search(op.type)]
    roots = {op for op in others if op.type == "Sqrt"}
    # The global norm, which only a summary needs, is made of these.
    unneeded = {op for op in others if op.type == "L2Loss"}
    norms = {op for op in roots if not unneeded & causes(op)}
    norms = {op for op in norms if touching(w, causes(op))}
    assert len(written) == 2
    assert norms
    assert [op.type for op in written if not {loss.op, *norms} <= causes(op)] == []


def test_losses_of_a_v1_graph_are_found_by_scope():
    with tf.Graph().as_default():
        for scope in ("encoder", "decoder"):
            with v1.variable_scope(scope):
                v1.get_variable("w", [2], regularizer=tf.nn.l2_loss)
        total = ls.get_regularization_loss("encoder")
        collected = v1.get_collection(v1.GraphKeys.REGULARIZATION_LOSSES)
        assert total.op.name == "total_regularization_loss"
        assert len(collected) == 2


def test_eagerly_losses_have_to_be_handed_over():
    with pytest.raises(ValueError, match="losses="):
        ls.get_regularization_loss()
    assert float(ls.get_regularization_loss(losses=[tf.constant(1.5), None])) == 1.5
