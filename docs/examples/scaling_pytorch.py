import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
sgd = torch.optim.SGD([("w", w)], lr=0.5)
scale = lockstep.DynamicLossScale(64.0, hysteresis=2)
opt = lockstep.MixedPrecisionLossScaleOptimizer(sgd, scale, clip_norm=2.5)


def step(*gradient):
    opt.zero_grad()
    loss = (w * torch.tensor(gradient)).sum()
    opt.scale_loss(loss).backward()
    opt.step()  # unscales, looks, clips, steps or skips, moves the scale
    print(w.tolist(), opt.last_step.reason)


step(3.0, 4.0)  # the norm is that of the unscaled gradient
step(float("inf"), 4.0)  # skipped; a single overflow leaves the scale alone
step(float("inf"), 4.0)  # skipped; the second one lowers it
step(0.0, 1.0)
