import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from lockstep import pytorch as lockstep

digits = load_digits()
pixels = torch.tensor(digits.data).half() / 16
labels = torch.tensor(digits.target)
test = slice(1500, None)


def build():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    net = torch.nn.Sequential(*layers).half()  # weights, gradients: float16
    sgd = torch.optim.SGD(net.named_parameters(), lr=0.1, momentum=0.9)
    # The optimizer trains float32 masters. A loss scale of 2**24 is too large at first.
    scale = lockstep.DynamicLossScale(initial_loss_scale=2**24)
    return net, lockstep.MixedPrecisionOptimizerWrapper(sgd, loss_scale=scale)


def fit(net, opt, epoch):
    order = torch.randperm(1500, generator=torch.Generator().manual_seed(epoch))
    for rows in order.split(50):
        opt.zero_grad()
        output = net(pixels[rows]).float()
        loss = torch.nn.functional.cross_entropy(output, labels[rows])
        opt.scale_loss(loss).backward()
        opt.step()  # skipped, and the scale halved, if a gradient overflowed


net, opt = build()
for epoch in range(4):
    fit(net, opt, epoch)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.pt")
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, path)
    fit(net, opt, epoch=4)
    resumed, resumed_opt = build()
    saved = torch.load(path)
resumed.load_state_dict(saved["net"])
resumed_opt.load_state_dict(saved["opt"])  # masters and loss scale included
fit(resumed, resumed_opt, epoch=4)
pairs = zip(net.parameters(), resumed.parameters(), strict=True)
right = (net(pixels[test]).argmax(1) == labels[test]).float().mean()
print("accuracy above 80%:", right.item() > 0.8)
print("steps were skipped:", opt.skipped_steps > 0)
print("the loss scale fell:", float(opt.loss_scale) < 2**24)
print("the resumed run has the same weights:", all(torch.equal(a, b) for a, b in pairs))
