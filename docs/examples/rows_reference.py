import numpy as np

from lockstep import reference as lockstep

table = lockstep.Variable("table", [[3.0, 4.0], [6.0, 8.0], [0.5, 0.0]], np.float32)
sgd = lockstep.GradientDescentOptimizer(1.0)
opt = lockstep.VariableClippingOptimizer(sgd, {table: [1]}, max_norm=2.5)


def step(*ids):
    still = np.zeros((len(ids), 2), np.float32)  # a zero gradient still clips
    opt.apply_gradients([(lockstep.Rows(np.array(ids), still, (3, 2)), table)])
    print(table.value.tolist(), opt.last_step.reason)


step(0, 2, 0)  # row 1 is not in this batch
step(1)
