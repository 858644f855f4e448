import numpy as np

from lockstep import reference

start = np.float32([-0.913, -0.458])
gradients = np.float32(
    [[-0.287, -0.732], [-0.501, -0.456], [-0.0584, -0.0893], [0.756, -0.606]]
)
recorded = np.float32([-0.91074, -0.4109175])  # the shared weights after four steps

total = sum(gradients, np.zeros(2, np.float32))
allowed = {}
for pushed, divisor in ("mean", 4), ("sum", 1):
    getter = reference.AGNCustomGetter("/cpu:0")
    getter([reference.Variable("w", start)])
    sgd = reference.GradientDescentOptimizer(0.1)
    getter.center.push({"w": total / np.float32(divisor)}, sgd)
    allowed[pushed] = getter.center.variables["w"].value
    print(pushed, allowed[pushed])
print([name for name, trace in allowed.items() if np.array_equal(trace, recorded)])
