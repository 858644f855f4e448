import ray
import torch

from lockstep.pytorch import AGNCustomGetter, AGNOptimizer
from lockstep.ray import RayCenter


@ray.remote
def train(number):
    generator = torch.Generator().manual_seed(number)
    model = torch.nn.Linear(2, 1)
    getter = AGNCustomGetter("cpu", center="ray://plane")
    sgd = torch.optim.SGD(getter(model), lr=0.1)
    worker = AGNOptimizer(sgd, 2, getter, communication_period=5)
    with worker.make_session_run_hook(is_chief=number == 0, task_index=number):
        for _ in range(200):
            x = torch.randn(16, 2, generator=generator)
            error = model(x) - x @ torch.tensor([[2.0], [-1.0]])
            worker.zero_grad()
            error.square().mean().backward()
            worker.step()


ray.init(log_to_driver=False)
ray.get([train.remote(number) for number in range(2)])
center = RayCenter("plane")
print(center.end()["rounds"], "rounds")
print(center.weights()["weight"].round(3).tolist())
ray.shutdown()
