import torch

from lockstep import pytorch as lockstep

kernel = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
bias = torch.nn.Parameter(torch.zeros(2))
kernel.grad, bias.grad = torch.tensor([60.0, 80.0]), torch.tensor([1.0, 2.0])
pairs = [(parameter.grad, parameter) for parameter in (kernel, bias)]


def show(processed):
    print([[round(float(x), 4) for x in gradient] for gradient, _ in processed])


larc = {"larc_eta": 0.01, "larc_mode": "clip"}
show(lockstep.post_process_gradients(pairs, [], 0.1, None, larc))
show(lockstep.clip_gradients_by_norm(pairs, 10.0))
