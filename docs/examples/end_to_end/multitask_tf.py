import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from lockstep import tf as lockstep

# Two tasks on 1797 images of digits. Every tenth batch alone has labels of the second.
digits = load_digits()
pixels = tf.constant(digits.data / 16, tf.float32)
number = tf.constant(digits.target)
odd = number % 2
SHAPES = {"body": [64, 32], "number": [32, 10], "odd": [32, 2]}


def build():
    starts = tf.random.Generator.from_seed(0)
    net = {k: tf.Variable(starts.normal(v) * 0.2, name=k) for k, v in SHAPES.items()}
    adam = tf.compat.v1.train.AdamOptimizer(0.005)
    return net, lockstep.MultitaskOptimizerWrapper(adam)


def heads(net, rows):
    hidden = tf.nn.relu(tf.gather(pixels, rows) @ net["body"])
    return hidden @ net["number"], hidden @ net["odd"]


def fit(net, opt, epoch):
    order = np.random.default_rng(epoch).permutation(1500)
    for k, rows in enumerate(np.split(order, 30)):

        def loss(rows=rows, present=float(k % 10 == 0)):
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
            first, second = heads(net, rows)
            one = tf.reduce_mean(entropy(tf.gather(number, rows), first))
            return one + present * tf.reduce_mean(entropy(tf.gather(odd, rows), second))

        # An absent task's head and its Adam moments stay as they are.
        opt.minimize(loss, var_list=list(net.values()))


net, opt = build()
for epoch in range(8):
    fit(net, opt, epoch)
with tempfile.TemporaryDirectory() as folder:
    path = tf.train.Checkpoint(net=net, opt=opt).write(f"{folder}/run")
    fit(net, opt, epoch=8)
    resumed = build()
    status = tf.train.Checkpoint(net=resumed[0], opt=resumed[1]).read(path)
    fit(*resumed, epoch=8)
    status.assert_consumed()
right = [
    np.mean(tf.argmax(scores, 1) == labels[1500:])
    for scores, labels in zip(heads(net, range(1500, 1797)), (number, odd), strict=True)
]
print("both tasks above 80%:", min(right) > 0.8)
same = [np.array_equal(net[name], resumed[0][name]) for name in net]
print("the resumed run has the same weights:", all(same))
