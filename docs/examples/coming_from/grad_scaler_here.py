import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
sgd = torch.optim.SGD([("w", w)], lr=0.5)
scale = lockstep.DynamicLossScale(64.0)
opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, scale, clip_norm=2.5)


def step(*gradient):
    opt.zero_grad()
    loss = (w * torch.tensor(gradient)).sum()
    opt.scale_loss(loss).backward()
    opt.step()


step(3.0, 4.0)
print(w.tolist(), opt.last_step.reason)
for _ in range(200):
    step(float("inf"), 4.0)
print(w.tolist(), opt.last_step.reason)
step(3.0, 4.0)
print(w.tolist(), opt.last_step.reason)
