import torch

w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
opt = torch.optim.SGD([w], lr=0.5)
scaler = torch.amp.GradScaler("cpu")

scaler.scale(torch.tensor(1.0))  # a batch without examples of this task
try:
    scaler.step(opt)
except AssertionError as error:
    print("AssertionError:", error)
