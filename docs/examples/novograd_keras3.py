import keras

from lockstep import keras3 as lockstep

w = keras.Variable([8.0], name="w")
opt = lockstep.NovoGrad(learning_rate=0.5, beta1=0.5, beta2=0.5)


def step(x):
    opt.minimize(lambda: keras.ops.sum(w * x), var_list=[w])
    v = opt.get_slot(w, "second_moment")
    print(f"gradient {x:g}: v {v.numpy():g}, w {w.numpy().item():.3f}")


step(4.0)
step(28.0)  # seven times as large, but not seven times the step
step(4.0)  # v remembers
