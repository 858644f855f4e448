import keras
import tensorflow as tf

w = keras.Variable([1.0, 2.0], name="w")
sgd = keras.optimizers.SGD(0.5)
opt = keras.optimizers.LossScaleOptimizer(sgd, initial_scale=64.0)
opt.build([w])


def step(*gradient):
    with tf.GradientTape() as tape:
        loss = opt.scale_loss(keras.ops.sum(w * gradient))
    opt.apply(tape.gradient(loss, [w.value]), [w])


step(1.0, 1.0)
print(w.numpy().tolist(), "scale", float(opt.dynamic_scale))
for _ in range(200):
    step(float("inf"), 1.0)
print(w.numpy().tolist(), "scale", float(opt.dynamic_scale))
step(1.0, 1.0)
print(w.numpy().tolist(), "scale", float(opt.dynamic_scale))
