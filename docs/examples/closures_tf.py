import socket

import tensorflow as tf

from lockstep.tf import MomentumOptimizer

PERIOD, RATE, MOMENTUM = 5, 0.02, 0.5
each = tf.nest.map_structure


def addresses(count):
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    found = [f"127.0.0.1:{one.getsockname()[1]}" for one in held]
    for one in held:
        one.close()
    return found


jobs = {"ps": addresses(1), "worker": addresses(2)}
cluster = tf.train.ClusterSpec(jobs)
# Fewer threads than servers of one process would wait for one another.
config = tf.compat.v1.ConfigProto(inter_op_parallelism_threads=8)
servers = [  # on a cluster each machine starts its own
    tf.distribute.Server(cluster, job_name=job, task_index=task, config=config)
    for job in jobs
    for task in range(len(jobs[job]))
]
resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    cluster, rpc_layer="grpc"
)
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)

with strategy.scope():
    center = [tf.Variable(tf.zeros([2, 1])), tf.Variable(tf.zeros([1]))]
    rounds = tf.Variable(0)
    # With a lock, or pushes that overlap would lose updates.
    rule = MomentumOptimizer(RATE, MOMENTUM, use_locking=True)
    slots = [  # each worker has its own
        tf.Variable(tf.zeros_like(c), per_worker_variable=True) for c in center
    ]


def loss(weights, seed):
    x = tf.random.stateless_normal([16, 2], seed)
    error = tf.matmul(x, weights[0]) + weights[1] - tf.matmul(x, [[2.0], [-1.0]])
    return tf.reduce_mean(tf.square(error - 0.5))


@tf.function
def train_round(number):
    # Tensors all the way: what is per worker is read once here and assigned once.
    weights = [c.read_value() for c in center]
    velocities = [s.read_value() for s in slots]
    gathered = [tf.zeros_like(w) for w in weights]
    for step in tf.range(PERIOD):
        with tf.GradientTape() as tape:
            tape.watch(weights)
            value = loss(weights, tf.stack([number, step]))
        gradients = tape.gradient(value, weights)
        velocities = each(lambda v, g: MOMENTUM * v + g, velocities, gradients)
        weights = each(lambda w, v: w - RATE * v, weights, velocities)
        gathered = each(tf.add, gathered, gradients)
    each(lambda slot, velocity: slot.assign(velocity), slots, velocities)
    means = [a / PERIOD for a in gathered]
    pairs = list(zip(means, center, strict=True))
    strategy.run(lambda: rule.apply_gradients(pairs, global_step=rounds))


for number in range(400):
    coordinator.schedule(train_round, args=(tf.constant(number),))
coordinator.join()
print(rounds.numpy(), "rounds")
for weight in center:
    print([round(float(w), 3) for w in tf.reshape(weight, [-1])])
