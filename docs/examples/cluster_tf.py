import socket

import tensorflow as tf

from lockstep.tf import AGNCustomGetter, AGNOptimizer

v1 = tf.compat.v1
v1.disable_eager_execution()
v1.logging.set_verbosity(v1.logging.ERROR)


def addresses(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return found


def build(cluster, task):
    """Build what worker ``task`` would build in a process of its own."""
    device = f"/job:worker/task:{task}"
    place = v1.train.replica_device_setter(cluster=cluster, worker_device=device)
    with v1.device(place):
        getter = AGNCustomGetter(worker_device=device)
        with v1.variable_scope("net", custom_getter=getter):
            weight = v1.get_variable("weight", initializer=tf.constant([1.0, 2.0]))
        gradient = v1.placeholder(tf.float32, [2])
        rounds = v1.train.get_or_create_global_step()
        sgd = v1.train.GradientDescentOptimizer(0.5)
        optimizer = AGNOptimizer(sgd, 2, getter, communication_period=2)
        train = optimizer.apply_gradients([(gradient, weight)], global_step=rounds)
    hook = optimizer.make_session_run_hook(is_chief=task == 0, task_index=task)
    shared = optimizer.get_slot(weight, optimizer.GLOBAL_VARIABLE_NAME)
    return gradient, train, [weight, shared, rounds], hook


def read(session, state):
    """Read without the session's hooks."""
    return session.run_step_fn(lambda step_context: step_context.session.run(state))


cluster = tf.train.ClusterSpec({"ps": addresses(1), "worker": addresses(2)})
server = tf.distribute.Server(cluster, job_name="ps", task_index=0)
workers = []
for task in range(2):
    server = tf.distribute.Server(cluster, job_name="worker", task_index=task)
    with tf.Graph().as_default():
        gradient, train, state, hook = build(cluster, task)
        # Without filters a session waits until every worker of the cluster is there.
        seen = ["/job:ps", f"/job:worker/task:{task}"]
        session = v1.train.MonitoredTrainingSession(
            server.target,
            is_chief=task == 0,
            hooks=[hook],
            config=v1.ConfigProto(device_filters=seen),
            log_step_count_steps=None,
        )
    workers.append((session, gradient, train, state))
    print([variable.device for variable in state])

for task, values in (0, [1.0, 0.0]), (1, [0.0, 1.0]), (0, [1.0, 1.0]), (1, [0.0, 2.0]):
    session, gradient, train, state = workers[task]
    session.run(train, {gradient: values})
    weight, shared, rounds = read(session, state)
    print(task, weight.tolist(), shared.tolist(), rounds)
