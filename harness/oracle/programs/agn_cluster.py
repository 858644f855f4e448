"""Two asynchronous workers that send accumulated gradients to a parameter server."""

import json
import socket

import numpy as np

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import AGNCustomGetter
from tensorflow.contrib.opt import AGNOptimizer

# --- end of imports ---

PERIOD = 2


def free_addresses(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    addresses = ["127.0.0.1:%d" % one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return addresses


def build(task):
    device = "/job:worker/task:%d/cpu:0" % task
    place = tf.train.replica_device_setter(
        worker_device=device, ps_device="/job:ps/task:0/cpu:0", ps_tasks=1
    )
    with tf.Graph().as_default() as graph, tf.device(place):
        getter = AGNCustomGetter(worker_device=device)
        start = tf.random_normal_initializer(seed=71)
        scope = tf.variable_scope("", custom_getter=getter, use_resource=True)
        with scope:
            kernel = tf.get_variable("kernel", [2, 2], initializer=start)
            bias = tf.get_variable("bias", [2], initializer=start)
        x = tf.placeholder(tf.float32, [None, 2], "x")
        loss = tf.reduce_sum(tf.square(tf.matmul(x, kernel) + bias - 1.0))
        step = tf.train.get_or_create_global_step()
        base = tf.train.AdamOptimizer(0.02)
        # On the parameter server or by reference, its count of steps would race.
        with tf.device(device), tf.variable_scope("", use_resource=True):
            optimizer = AGNOptimizer(base, 2, getter, communication_period=PERIOD)
        train = optimizer.minimize(loss, global_step=step)
        hook = optimizer.make_session_run_hook(task == 0, task)
        shared = [v for v in tf.global_variables() if v is not step]
    keys = ("variables", "local_variables", "trainable_variables")
    names = {key: sorted(v.op.name for v in graph.get_collection(key)) for key in keys}
    return graph, x, (loss, train), [kernel, bias], shared, step, hook, names


ps, *workers = free_addresses(3)
cluster = tf.train.ClusterSpec({"ps": [ps], "worker": workers})
servers = [tf.train.Server(cluster, job_name="ps", task_index=0)]
for task in range(2):
    servers.append(tf.train.Server(cluster, job_name="worker", task_index=task))
built = [build(task) for task in range(2)]
print(json.dumps(built[0][-1], sort_keys=True))

sessions = []
for task, made in enumerate(built):
    with made[0].as_default():
        session = tf.train.MonitoredTrainingSession(
            servers[1 + task].target, is_chief=task == 0, hooks=[made[6]]
        )
    sessions.append(session)
data = np.random.RandomState(72)
for k in range(12):
    # In turn, so that the numbers do not depend on who comes first.
    graph, x, fetched, local, shared, step, _, _ = built[k % 2]
    value, _ = sessions[k % 2].run(fetched, {x: data.randn(3, 2)})
    row = {"worker": k % 2, "loss": float(value)}
    raw = sessions[k % 2]._tf_sess()
    row["local"] = [v.tolist() for v in raw.run(local)]
    row["shared"] = {v.op.name: raw.run(v).tolist() for v in shared}
    row["step"] = int(raw.run(step))
    print(json.dumps(row, sort_keys=True))
