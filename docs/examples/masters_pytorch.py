import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.ones(2).half())
sgd = torch.optim.SGD([("w", w)], lr=2.0**-13)
opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, loss_scale="dynamic")


def step(x):
    opt.zero_grad()
    loss = (w.float() * torch.tensor(x)).sum()
    opt.scale_loss(loss).backward()
    opt.step()
    print(w.tolist(), opt.master(w).tolist(), opt.last_step.reason)


for _ in range(3):
    step([-1.0, 1.0])  # too small a step for float16, but not for the master
step([4.0, 1.0])  # 4 * 32768 is too large for float16
step([0.0, 1.0])
