"""Lion (Chen et al., 2023) in PyTorch."""

import torch


class Lion(torch.optim.Optimizer):
    def __init__(self, parameters, lr, beta1=0.9, beta2=0.99):
        super().__init__(parameters, {"lr": lr, "beta1": beta1, "beta2": beta2})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p -= group["lr"] * torch.lerp(p.grad, m, group["beta1"]).sign()
                m.lerp_(p.grad, 1 - group["beta2"])


def make(parameters, learning_rate, **settings):
    return Lion(parameters, learning_rate, **settings)
