import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.zeros(2))
step = lockstep.optimize_loss(
    lambda gradient: (w * torch.tensor(gradient)).sum(),
    torch.optim.SGD,
    {},
    1.0,
    var_list=[w],
    iter_size=2,
    clip_gradients=2.5,
)

for gradient in [[6.0, 0.0], [0.0, 8.0], [1.0, 0.0], [0.0, 1.0]]:
    step(gradient)
    if step.last_step.applied:
        print(w.tolist())
