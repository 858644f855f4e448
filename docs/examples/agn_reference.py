import numpy as np

from lockstep import reference as lockstep

workers, center = [], None
for number in range(2):
    weight = lockstep.Variable("weight", [1.0, 2.0], np.float32)
    getter = lockstep.AGNCustomGetter("/cpu:0", center=center)
    getter([weight])
    center = getter.center
    sgd = lockstep.GradientDescentOptimizer(0.5)
    worker = lockstep.AGNOptimizer(sgd, 2, getter, communication_period=2)
    worker.get_init_op(task_index=number)
    workers.append((weight, worker))


def step(number, gradient):
    weight, worker = workers[number]
    worker.apply_gradients([(np.float32(gradient), weight)])
    shared = center.variables["weight"].value
    print(number, weight.value.tolist(), shared.tolist(), worker.last_step.reason)


step(0, [1.0, 0.0])
step(1, [0.0, 1.0])
step(0, [1.0, 1.0])
step(1, [0.0, 2.0])
