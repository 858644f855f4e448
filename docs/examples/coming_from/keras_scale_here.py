import keras
import tensorflow as tf

from lockstep import keras3 as lockstep

w = keras.Variable([1.0, 2.0], name="w")
scale = lockstep.DynamicLossScale(64.0)
opt = lockstep.MixedPrecisionLossScaleOptimizer(keras.optimizers.SGD(0.5), scale)
opt.build([w])


def step(*gradient):
    with tf.GradientTape() as tape:
        loss = opt.scale_loss(keras.ops.sum(w * gradient))
    opt.apply(tape.gradient(loss, [w.value]), [w])


step(1.0, 1.0)
print(w.numpy().tolist(), opt.last_step.reason)
for _ in range(200):
    step(float("inf"), 1.0)
print(w.numpy().tolist(), opt.last_step.reason)
step(1.0, 1.0)
print(w.numpy().tolist(), opt.last_step.reason)
