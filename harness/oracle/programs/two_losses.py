"""Several loss-scale optimizers in one graph; names in checkpoints, either way."""

import json
import sys

# --- imports ---
import tensorflow as tf
from tensorflow.contrib.opt import VariableClippingOptimizer

experimental = tf.train.experimental

# --- end of imports ---

HALF = 4
phase = sys.argv[1]


class OwnScale(experimental.LossScale):
    def __init__(self):
        super(OwnScale, self).__init__()
        self._factor = self._add_weight("mine", dtype=tf.float32, initial_value=4.0)

    def __call__(self):
        return tf.convert_to_tensor(self._factor)

    def update(self, grads):
        return tf.group(self._factor.assign_add(1.0)), tf.constant(True)

    def get_config(self):
        return {}


def scaled(base, scale="dynamic"):
    return experimental.MixedPrecisionLossScaleOptimizer(base, scale)


def adam(variable):
    return tf.train.AdamOptimizer(0.05)


def clipped(variable):
    return VariableClippingOptimizer(adam(variable), {variable: [1]}, 0.9)


def game(variables, loss):
    for variable in variables[:2]:
        yield scaled(adam(variable)).minimize(loss, var_list=[variable])


def three(variables, loss):
    for variable in variables:
        optimizer = scaled(adam(variable))
        tf.cond(loss > 1.0, lambda: loss, lambda: -loss)
        yield optimizer.minimize(loss, var_list=[variable])


def scoped(variables, loss):
    with tf.name_scope("outer"):
        for train in game(variables, loss):
            yield train


def inside(variables, loss):
    for variable, name in zip(variables, (None, "ap", "ap")):
        optimizer = scaled(clipped(variable))
        pairs = optimizer.compute_gradients(loss, [variable])
        yield optimizer.apply_gradients(pairs, name=name)


def around(variables, loss):
    for variable in variables:
        base = scaled(adam(variable))
        optimizer = VariableClippingOptimizer(base, {variable: [1]}, 0.9)
        yield optimizer.minimize(loss, var_list=[variable])


def own(variables, loss):
    yield scaled(adam(variables[0]), OwnScale()).minimize(loss)


for make in (game, three, scoped, inside, around, own):
    tf.reset_default_graph()
    start = tf.random_uniform_initializer(-1.0, 1.0, seed=61)
    variables = [
        tf.get_variable(name, [2, 3], initializer=start, use_resource=True)
        for name in ("one", "two", "three")
    ]
    loss = tf.reduce_sum(tf.square(tf.add_n(variables) - 0.5))
    trains = list(make(variables, loss))
    saver = tf.train.Saver()
    path = "./%s.ckpt" % make.__name__
    with tf.Session() as session:
        if phase == "second":
            saver.restore(session, path)
        else:
            session.run(tf.global_variables_initializer())
        for k in range(HALF):
            for train in trains:
                session.run(train)
            found = session.run({v.op.name: v for v in tf.global_variables()})
            row = {"optimizers": make.__name__, "step": k}
            row["state"] = {name: value.tolist() for name, value in found.items()}
            print(json.dumps(row, sort_keys=True))
        if phase == "first":
            saver.save(session, path)
            shapes = tf.train.NewCheckpointReader(path).get_variable_to_shape_map()
            print(json.dumps({"checkpoint": shapes}, sort_keys=True))
