import tempfile
from pathlib import Path

import torch

from lockstep.pytorch import (
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    pipeline_of,
)

model = torch.nn.ModuleDict({"speech": torch.nn.Linear(4, 1)})
model["text"] = torch.nn.Linear(4, 1)


def make_optimizer():
    # named_parameters, so that reports have names and not numbers
    adam = torch.optim.Adam(model.named_parameters(), lr=1e-3)
    tasks = MultitaskOptimizerWrapper(adam)
    return MixedPrecisionLossScaleOptimizer(tasks, "dynamic", clip_norm=1.0)


def train(a, b):
    inputs = torch.ones(8, 4)
    loss = a * model["speech"](inputs).mean() + b * model["text"](inputs).mean()
    optimizer.zero_grad()
    optimizer.scale_loss(loss).backward()
    optimizer.step()


optimizer = make_optimizer()
print(pipeline_of(optimizer))
for weights in ((1.0, 1.0), (0.0, 1.0), (1.0, float("inf"))):
    train(*weights)
    report, scale = optimizer.last_step, float(optimizer.loss_scale)
    print(report.applied, report.skipped, report.nonfinite, scale)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.pt")
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path)
    saved = torch.load(path)

# As after a restart: the same wrappers in the same order.
optimizer = make_optimizer()
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
train(1.0, 1.0)
print(optimizer.skipped_steps, float(optimizer.loss_scale))
