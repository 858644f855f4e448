import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from lockstep import pytorch as lockstep

# Two tasks on 1797 images of digits. Every tenth batch alone has labels of the second.
digits = load_digits()
pixels = torch.tensor(digits.data).float() / 16
number = torch.tensor(digits.target)
odd = number % 2


def build():
    torch.manual_seed(0)
    sizes = {"body": (64, 32), "number": (32, 10), "odd": (32, 2)}
    net = torch.nn.ModuleDict({k: torch.nn.Linear(*v) for k, v in sizes.items()})
    adam = torch.optim.Adam(net.parameters(), lr=0.005)
    return net, lockstep.MultitaskOptimizerWrapper(adam)


def heads(net, rows):
    hidden = torch.relu(net["body"](pixels[rows]))
    return net["number"](hidden), net["odd"](hidden)


def fit(net, opt, epoch):
    order = torch.randperm(1500, generator=torch.Generator().manual_seed(epoch))
    for k, rows in enumerate(order.split(50)):
        first, second = heads(net, rows)
        present = float(k % 10 == 0)
        loss = torch.nn.functional.cross_entropy(first, number[rows])
        loss = loss + present * torch.nn.functional.cross_entropy(second, odd[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()  # an absent task's head and its Adam moments stay as they are


net, opt = build()
for epoch in range(8):
    fit(net, opt, epoch)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.pt")
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, path)
    fit(net, opt, epoch=8)
    resumed, resumed_opt = build()
    saved = torch.load(path)
resumed.load_state_dict(saved["net"])
resumed_opt.load_state_dict(saved["opt"])
fit(resumed, resumed_opt, epoch=8)
pairs = zip(net.parameters(), resumed.parameters(), strict=True)
right = [
    (scores.argmax(1) == labels[1500:]).float().mean().item()
    for scores, labels in zip(heads(net, slice(1500, None)), (number, odd), strict=True)
]
print("both tasks above 80%:", min(right) > 0.8)
print("the resumed run has the same weights:", all(torch.equal(a, b) for a, b in pairs))
