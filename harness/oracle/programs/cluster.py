"""A parameter server and two workers in one process, by replica_device_setter."""

import json
import socket

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import MultitaskOptimizerWrapper
from tensorflow.contrib.opt import VariableClippingOptimizer

# --- end of imports ---


def free_addresses(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return addresses


def build(task):
    """Between-graph replication: every worker builds the same graph."""
    place = tf.train.replica_device_setter(
        cluster=cluster, worker_device="/job:worker/task:%d" % task
    )
    with tf.Graph().as_default() as graph, tf.device(place):
        start = tf.random_uniform_initializer(-1.0, 1.0, seed=21)
        table = tf.get_variable("table", [5, 2], initializer=start, use_resource=True)
        head = tf.get_variable("head", [2], initializer=start, use_resource=True)
        ids = tf.placeholder(tf.int32, [None], "ids")
        weight = tf.placeholder(tf.float32, [], "weight")
        rows = tf.nn.embedding_lookup(table, ids)
        loss = tf.reduce_sum(tf.square(rows - 0.5)) + weight * tf.reduce_sum(head)
        base = tf.train.AdamOptimizer(0.1)
        optimizer = VariableClippingOptimizer(
            MultitaskOptimizerWrapper(base),
            {table: [1]},
            0.9,
            colocate_clip_ops_with_vars=True,
        )
        step = tf.train.get_or_create_global_step()
        train = optimizer.minimize(loss, global_step=step)
        slots = [optimizer.get_slot(head, name) for name in ("m", "v")]
        init = tf.global_variables_initializer()
    devices = {v.op.name: v.device for v in graph.get_collection("variables")}
    return (
        graph,
        (ids, weight),
        (loss, train),
        [table, head, step] + slots,
        init,
        devices,
    )


ps, *workers = free_addresses(3)
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": workers})
servers = [tf.train.Server(cluster, job_name="ps", task_index=0)]
for task in range(2):
    servers.append(tf.train.Server(cluster, job_name="worker", task_index=task))
data = np.random.RandomState(22)
sessions, built = [], []
for task in range(2):
    made = build(task)
    built.append(made)
    sessions.append(tf.Session(servers[1 + task].target, graph=made[0]))
    if task == 0:
        sessions[0].run(made[4])
        print(json.dumps({"devices": made[5]}, sort_keys=True))

for k in range(10):
    # In turn, so that the numbers do not depend on who comes first.
    _, (ids, weight), fetched, state, _, _ = built[k % 2]
    feed = {ids: data.randint(5, size=4), weight: float(k % 4 == 0)}
    loss, _ = sessions[k % 2].run(fetched, feed)
    table, head, step, m, v = [value.tolist() for value in sessions[k % 2].run(state)]
    row = {"worker": k % 2, "loss": float(loss), "table": table, "head": head}
    print(json.dumps(dict(row, step=step, m=m, v=v)))
