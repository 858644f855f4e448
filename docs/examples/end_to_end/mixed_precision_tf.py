import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from lockstep import tf as lockstep

digits = load_digits()
pixels = tf.constant(digits.data / 16, tf.float16)
labels = digits.target


def build():
    starts = tf.random.Generator.from_seed(0)
    shapes = {"body": [64, 32], "head": [32, 10]}
    net = {
        name: tf.Variable(tf.cast(starts.normal(shape) * 0.2, tf.float16), name=name)
        for name, shape in shapes.items()
    }
    momentum = tf.compat.v1.train.MomentumOptimizer(0.1, momentum=0.9)
    # The optimizer trains float32 masters. A loss scale of 2**24 is too large at first.
    scale = lockstep.DynamicLossScale(initial_loss_scale=2**24)
    return net, lockstep.MixedPrecisionOptimizerWrapper(momentum, loss_scale=scale)


def scores(net, images):
    return tf.cast(tf.nn.relu(images @ net["body"]) @ net["head"], tf.float32)


def fit(net, opt, epoch):
    order = np.random.default_rng(epoch).permutation(1500)
    for rows in np.split(order, 30):

        def loss(rows=rows):
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
            output = scores(net, tf.gather(pixels, rows))
            return tf.reduce_mean(entropy(labels[rows], output))

        # Skipped, and the scale halved, if a gradient overflowed.
        opt.minimize(loss, var_list=list(net.values()))


net, opt = build()
for epoch in range(4):
    fit(net, opt, epoch)
with tempfile.TemporaryDirectory() as folder:
    path = tf.train.Checkpoint(net=net, opt=opt).write(f"{folder}/run")
    fit(net, opt, epoch=4)
    resumed = build()
    status = tf.train.Checkpoint(net=resumed[0], opt=resumed[1]).read(path)
    fit(*resumed, epoch=4)
    status.assert_consumed()  # masters and loss scale included
right = tf.argmax(scores(net, pixels[1500:]), 1) == labels[1500:]
print("accuracy above 80%:", np.mean(right) > 0.8)
print("steps were skipped:", int(opt.skipped_steps) > 0)
print("the loss scale fell:", float(opt.loss_scale) < 2**24)
same = [np.array_equal(net[name], resumed[0][name]) for name in net]
print("the resumed run has the same weights:", all(same))
