import keras
import tensorflow as tf

a, b = keras.Variable([0.0], name="a"), keras.Variable([0.0], name="b")
opt = keras.optimizers.SGD(1.0, gradient_accumulation_steps=2)
opt.build([a, b])


def step(loss):
    with tf.GradientTape() as tape:
        value = keras.ops.sum(loss())
    opt.apply(tape.gradient(value, [a.value, b.value]), [a, b])


for _ in range(2):
    step(lambda: a + b)
    step(lambda: 1.0 * a)  # a micro-batch without examples for b
print("a", a.numpy().tolist(), "b", b.numpy().tolist())
