import torch

from lockstep.pytorch import VariableClippingOptimizer

torch.manual_seed(0)
table = torch.nn.Embedding(100_000, 8, sparse=True)
sgd = torch.optim.SGD(table.named_parameters(), lr=0.5)
opt = VariableClippingOptimizer(sgd, {"weight": [1]}, max_norm=1.0)

heads, tails = torch.randint(1000, (16,)), torch.randint(1000, (16,))
for _ in range(3):
    loss = (table(heads) - table(tails)).square().sum()  # the table, used twice
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(opt.last_step.reason)
