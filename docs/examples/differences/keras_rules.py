import keras
import tensorflow as tf

from lockstep import keras3
from lockstep.tf import strict

for name, lockstep, make in (
    ("Keras", keras3, keras.Variable),
    ("strict", strict, tf.Variable),
):
    w = make([[1.0], [1.0]])
    momentum = lockstep.MomentumOptimizer(0.5, 0.5)
    for row in (0, 1):
        gradient = tf.IndexedSlices(tf.ones([1, 1]), tf.constant([row]), [2, 1])
        momentum.apply_gradients([(gradient, w)])
    print(f"{name}: the rows are {w.numpy()[:, 0].tolist()}")
