import torch

from lockstep import pytorch as lockstep

a = torch.nn.Parameter(torch.tensor([3.0]))
b = torch.nn.Parameter(torch.tensor([4.0]))
momentum = torch.optim.SGD([a, b], lr=0.5, momentum=0.5)
opt = lockstep.MultitaskOptimizerWrapper(momentum)


def step(present):
    def loss():  # or the loss tensor itself
        return (a**2).sum() + present * (b**2).sum()

    pairs = opt.compute_gradients(loss, [a, b])
    clipped, norm = lockstep.clip_gradients_by_global_norm(pairs, 5.0)
    opt.apply_gradients(clipped)
    slot = opt.get_slot(b, "momentum")
    print(f"norm {norm.item()}, b {b.item()}, momentum of b {slot.item()}")


step(present=1.0)
step(present=0.0)  # no example of b's task in this batch
