import numpy as np

from lockstep import reference as lockstep

w = lockstep.Variable("w", [1.0, 2.0], np.float32)
sgd = lockstep.GradientDescentOptimizer(0.5)
scale = lockstep.DynamicLossScale(64.0, hysteresis=2)
opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, scale, clip_norm=2.5)


def step(*gradient):
    opt.minimize(lambda: [np.array(gradient, np.float32)], var_list=[w])
    print(w.value.tolist(), opt.last_step.reason)


step(3.0, 4.0)  # the norm is that of the unscaled gradient
step(np.inf, 4.0)  # skipped; a single overflow leaves the scale alone
step(np.inf, 4.0)  # skipped; the second one lowers it
step(0.0, 1.0)
