import numpy as np

from lockstep import reference as lockstep

w = lockstep.Variable("w", [8.0], np.float32)
opt = lockstep.NovoGrad(learning_rate=0.5, beta1=0.5, beta2=0.5)


def step(x):
    opt.apply_gradients([(np.float32([x]), w)])
    v = opt.get_slot(w, "second_moment")
    print(f"gradient {x:g}: v {v.item():g}, w {w.value.item():.3f}")


step(4.0)
step(28.0)  # seven times as large, but not seven times the step
step(4.0)  # v remembers
