import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
sgd = torch.optim.SGD([("w", w)], lr=0.5)
opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, "dynamic")

opt.scale_loss(torch.tensor(1.0))  # a batch without examples of this task
opt.step()
print(opt.last_step.reason)
