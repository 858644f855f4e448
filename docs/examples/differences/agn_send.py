import numpy as np

from lockstep import reference

gradients, period = np.float32([[1.0, 2.0], [3.0, 6.0]]), 2
accumulated = gradients.sum(axis=0)
for name, sent in ("mean", accumulated / period), ("sum", accumulated):
    shared = reference.Variable("w", [4.0, 4.0], np.float32)
    reference.GradientDescentOptimizer(0.5).apply_gradients([(sent, shared)])
    print(f"{name} sent: the shared variable becomes {shared.value.tolist()}")
