import tensorflow as tf

from lockstep.tf import VariableClippingOptimizer

table = tf.Variable([[0.6, 0.8], [0.0, 1.0]])
sgd = tf.compat.v1.train.GradientDescentOptimizer(0.5)
opt = VariableClippingOptimizer(sgd, {table.ref(): [1]}, max_norm=1.0)

for _ in range(3):
    with tf.GradientTape() as tape:
        row = tf.nn.embedding_lookup(table, tf.constant([0]))
        loss = -3.0 * tf.reduce_sum(row)
    opt.apply_gradients([(tape.gradient(loss, table), table)])
    print("served", [f"{x:.3f}" for x in row[0]])
print("in the table: norm", f"{tf.norm(table[0]):.3f}")
