import numpy as np

from lockstep import reference

w = reference.Variable("w", [2.0], np.float32)
sgd = reference.GradientDescentOptimizer(0.25)
before = float(w.value[0] ** 2)
sgd.apply_gradients([(2 * w.value, w)])
after = float(w.value[0] ** 2)
print(f"the loss w^2 is read before the update, {before}, or after it, {after}")
