import torch

from lockstep import pytorch as lockstep

workers, center = [], None
for number in range(2):
    weight = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
    getter = lockstep.AGNCustomGetter("cpu", center=center)
    sgd = torch.optim.SGD(getter([("weight", weight)]), lr=0.5)
    center = getter.center
    worker = lockstep.AGNOptimizer(sgd, 2, getter, communication_period=2)
    worker.get_init_op(task_index=number)
    workers.append((weight, worker))


def step(number, gradient):
    weight, worker = workers[number]
    worker.zero_grad()
    (weight * torch.tensor(gradient)).sum().backward()
    worker.step()
    shared = worker.get_slot(weight, worker.GLOBAL_VARIABLE_NAME)
    print(number, weight.tolist(), shared.tolist(), worker.last_step.reason)


step(0, [1.0, 0.0])
step(1, [0.0, 1.0])
step(0, [1.0, 1.0])
step(1, [0.0, 2.0])
