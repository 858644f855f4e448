import tempfile
from pathlib import Path

import torch

from lockstep import pytorch as lockstep

model = torch.nn.ModuleDict({"speech": torch.nn.Linear(4, 1)})
model["text"] = torch.nn.Linear(4, 1)


def make_optimizer():
    # With named_parameters the reports have names; with parameters they have numbers.
    adam = torch.optim.Adam(model.named_parameters(), lr=1e-3)
    adam = lockstep.MultitaskOptimizerWrapper(adam)
    return lockstep.MixedPrecisionLossScaleOptimizer(adam, "dynamic", clip_norm=1.0)


def train(a, b):
    inputs = torch.ones(8, 4)
    loss = a * model["speech"](inputs).mean() + b * model["text"](inputs).mean()
    optimizer.zero_grad()
    optimizer.scale_loss(loss).backward()
    optimizer.step()


optimizer = make_optimizer()
print(lockstep.pipeline_of(optimizer))
for weights in ((1.0, 1.0), (0.0, 1.0), (1.0, float("inf"))):
    train(*weights)
    report = optimizer.last_step
    print(report.applied, report.skipped, report.nonfinite, float(optimizer.loss_scale))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    saved = torch.load(path)
# As after a restart: the same wrappers in the same order.
optimizer = make_optimizer()
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train(1.0, 1.0)
print(optimizer.skipped_steps, float(optimizer.loss_scale))
