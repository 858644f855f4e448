import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.tensor([[1.0, 2.0]]))
sgd = torch.optim.SGD([w], lr=0.5)
clipped = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=1.0)
scaled = lockstep.MixedPrecisionLossScaleOptimizer(clipped, "dynamic", clip_norm=5.0)
opt = lockstep.MultitaskOptimizerWrapper(scaled)

for number, stage in enumerate(lockstep.pipeline_of(opt), 1):
    print(number, stage)
