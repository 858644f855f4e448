import torch

w = torch.nn.Parameter(torch.zeros(2))


def clipped(*gradient):
    w.grad = torch.tensor(gradient)
    norm = torch.nn.utils.clip_grad_norm_([w], 2.5)
    print(f"norm {norm:g}, gradient", w.grad.tolist())


clipped(3.0, 4.0)
clipped(1.0, 0.0)
clipped(float("inf"), 4.0)
