import keras

from lockstep import keras3 as lockstep

w = keras.Variable([1.0, 1.0], dtype="float16", name="w")
sgd = keras.optimizers.SGD(2.0**-13)
opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, loss_scale="dynamic")


def step(x):
    def loss():
        return keras.ops.sum(keras.ops.cast(w, "float32") * x)

    opt.minimize(loss, var_list=[w])
    print(w.numpy().tolist(), opt.master(w).numpy().tolist(), opt.last_step.reason)


for _ in range(3):
    step([-1.0, 1.0])  # too small a step for float16, but not for the master
step([4.0, 1.0])  # 4 * 32768 is too large for float16
step([0.0, 1.0])
