import torch

from lockstep import pytorch as lockstep

w = torch.nn.Parameter(torch.zeros(2))


def clipped(*gradient):
    pairs = [(torch.tensor(gradient), w)]
    pairs, norm = lockstep.clip_gradients_by_global_norm(pairs, 2.5)
    print(f"norm {norm:g}, gradient", pairs[0][0].tolist())


clipped(3.0, 4.0)
clipped(1.0, 0.0)
clipped(float("inf"), 4.0)
