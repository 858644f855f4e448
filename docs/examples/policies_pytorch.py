import torch

from lockstep.pytorch import PolicyLR, lr_policies

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
scheduler = PolicyLR(optimizer, "poly_decay", decay_steps=4, min_lr=0.125)
for _ in range(4):
    print(scheduler.get_last_lr()[0])
    model(torch.ones(2, 3)).mean().backward()
    optimizer.step()
    scheduler.step()

print(lr_policies.poly_decay(2, 0.5, decay_steps=4, min_lr=0.125))
