import torch
from torch.nn import functional as F

from lockstep.pytorch import MultitaskOptimizerWrapper

torch.manual_seed(0)
body, digit, parity = (torch.nn.Linear(i, o) for i, o in ((64, 32), (32, 10), (32, 1)))
model = torch.nn.ModuleList([body, digit, parity])
opt = MultitaskOptimizerWrapper(torch.optim.Adam(model.parameters(), lr=1e-3))

images, labels = torch.randn(16, 64), torch.randint(10, (16,))
odd = (labels % 2).float()
known = torch.zeros(16)  # in this batch nobody labelled the parity

features = body(images).relu()
losses = F.binary_cross_entropy_with_logits(
    parity(features).squeeze(1), odd, reduction="none"
)
loss = F.cross_entropy(digit(features), labels) + (known * losses).mean()

opt.zero_grad()
loss.backward()
opt.step()  # leaves the parity head and its state alone
print(opt.last_step.reason)
