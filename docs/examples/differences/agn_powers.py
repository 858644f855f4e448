import torch

from lockstep import pytorch
from lockstep.pytorch import strict

for name, lockstep in ("default", pytorch), ("strict", strict):
    w = torch.nn.Parameter(torch.tensor([4.0]))
    getter = lockstep.AGNCustomGetter("cpu")
    adam = lockstep.AdamOptimizer(getter([w]), 0.5, beta1=0.5)
    opt = lockstep.AGNOptimizer(adam, 1, getter, communication_period=2)
    opt.get_init_op(0)
    for _ in range(4):  # two pushes
        opt.apply_gradients([(torch.ones(1), w)])
    center = getter.center.optimizer.param_groups[0]["beta1_power"]
    print(f"{name}: worker {adam.param_groups[0]['beta1_power']}, center {center}")
