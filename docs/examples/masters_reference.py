import numpy as np

from lockstep import reference as lockstep

w = lockstep.Variable("w", [1.0, 1.0], np.float16)
sgd = lockstep.GradientDescentOptimizer(2.0**-13)
opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, loss_scale="dynamic")


def step(x):  # a loss is given by its gradients here
    opt.minimize(lambda: [np.array(x, np.float16)], var_list=[w])
    print(w.value.tolist(), opt.master(w).value.tolist(), opt.last_step.reason)


for _ in range(3):
    step([-1.0, 1.0])  # too small a step for float16, but not for the master
step([4.0, 1.0])  # 4 * 32768 is too large for float16
step([0.0, 1.0])
