import tempfile

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits

from lockstep import tf as lockstep

# A digit is the bag of its dark pixels; each of the 64 pixels has a row of a table.
digits = load_digits()
dark, labels = digits.data > 8, digits.target


def build():
    starts = tf.random.Generator.from_seed(0)
    table = tf.Variable(starts.normal([64, 16]) * 0.1, name="table")
    head = tf.Variable(starts.normal([16, 10]) * 0.1, name="head")
    sgd = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    # After each step, the rows that the batch touched are cut to the norm 1.
    dims = {table.ref(): [1]}
    return table, head, lockstep.VariableClippingOptimizer(sgd, dims, max_norm=1.0)


def scores(table, head, rows):
    bag, pixel = np.nonzero(dark[rows])
    return tf.math.segment_sum(tf.gather(table, pixel), bag) @ head


def fit(table, head, opt, epoch):
    order = np.random.default_rng(epoch).permutation(1500)
    for rows in np.split(order, 50):

        def loss(rows=rows):
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits
            return tf.reduce_mean(entropy(labels[rows], scores(table, head, rows)))

        opt.minimize(loss, var_list=[table, head])


table, head, opt = build()
for epoch in range(5):
    fit(table, head, opt, epoch)
with tempfile.TemporaryDirectory() as folder:
    path = tf.train.Checkpoint(table=table, head=head, opt=opt).write(f"{folder}/run")
    fit(table, head, opt, epoch=5)
    resumed = build()
    names = ("table", "head", "opt")
    tf.train.Checkpoint(**dict(zip(names, resumed, strict=True))).read(path)
fit(*resumed, epoch=5)
right = tf.argmax(scores(table, head, slice(1500, None)), 1) == labels[1500:]
print("accuracy above 70%:", np.mean(right) > 0.7)
norm = tf.reduce_max(tf.norm(table, axis=1))
print(f"largest norm of a row: {norm:.2f} of the limit")
print("the resumed run has the same table:", np.array_equal(table, resumed[0]))
