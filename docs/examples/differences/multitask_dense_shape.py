import numpy as np

from lockstep import reference

w = reference.Variable("w", [[1.0], [1.0], [1.0]], np.float32)
opt = reference.MultitaskOptimizerWrapper(reference.GradientDescentOptimizer(0.5))
rows = reference.Rows(np.array([1]), np.float32([[1]]), dense_shape=None)
opt.apply_gradients([(rows, w)])
print(f"default: {w.value.ravel().tolist()}")
