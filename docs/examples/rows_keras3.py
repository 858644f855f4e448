import keras
import tensorflow as tf

from lockstep import keras3 as lockstep

table = keras.Variable([[3.0, 4.0], [6.0, 8.0], [0.5, 0.0]], name="table")
sgd = keras.optimizers.SGD(1.0)
opt = lockstep.VariableClippingOptimizer(sgd, {table.path: [1]}, max_norm=2.5)


def step(*ids):
    def loss():  # a zero gradient still clips
        return tf.reduce_sum(0.0 * tf.gather(table.value, tf.constant(ids)))

    opt.minimize(loss, var_list=[table])
    print(table.numpy().tolist(), opt.last_step.reason)


step(0, 2, 0)  # row 1 is not in this batch
step(1)
