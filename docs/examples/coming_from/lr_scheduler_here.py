import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.ones(1))
sgd = torch.optim.SGD([w], lr=0.8)
opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, "dynamic")
scheduler = lockstep.PolicyLR(opt, "poly_decay", decay_steps=4, power=2.0)

for gradient in (1.0, float("inf"), 1.0, 1.0):
    rate = scheduler.get_last_lr()[0]
    opt.zero_grad()
    opt.scale_loss((w * gradient).sum()).backward()
    opt.step()
    if opt.last_step.applied:
        scheduler.step()
    print(f"rate {rate:g}", "applied" if opt.last_step.applied else "skipped")
