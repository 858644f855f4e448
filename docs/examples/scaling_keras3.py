import keras

from lockstep import keras3 as lockstep

w = keras.Variable([1.0, 2.0], name="w")
sgd = keras.optimizers.SGD(0.5)
scale = lockstep.DynamicLossScale(64.0, hysteresis=2)
opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, scale, clip_norm=2.5)


def step(*gradient):
    opt.minimize(lambda: keras.ops.sum(w * gradient), var_list=[w])
    print(w.numpy().tolist(), opt.last_step.reason)


step(3.0, 4.0)  # the norm is that of the unscaled gradient
step(float("inf"), 4.0)  # skipped; a single overflow leaves the scale alone
step(float("inf"), 4.0)  # skipped; the second one lowers it
step(0.0, 1.0)
