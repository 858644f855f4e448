import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.tensor([8.0]))
opt = lockstep.NovoGrad([w], learning_rate=0.5, beta1=0.5, beta2=0.5)


def step(x):
    opt.zero_grad()
    (w * x).sum().backward()
    opt.step()
    v = opt.get_slot(w, "second_moment")
    print(f"gradient {x:g}: v {v.item():g}, w {w.item():.3f}")


step(4.0)
step(28.0)  # seven times as large, but not seven times the step
step(4.0)  # v remembers
