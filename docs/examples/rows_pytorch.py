import torch

from lockstep import pytorch as lockstep

table = torch.nn.Parameter(torch.tensor([[3.0, 4.0], [6.0, 8.0], [0.5, 0.0]]))
sgd = torch.optim.SGD([table], lr=1.0)
opt = lockstep.VariableClippingOptimizer(sgd, {table: [1]}, max_norm=2.5)


def step(*ids):
    rows = torch.nn.functional.embedding(torch.tensor(ids), table, sparse=True)
    opt.zero_grad()
    (0 * rows).sum().backward()  # a zero gradient still clips
    opt.step()
    print(table.tolist(), opt.last_step.reason)


step(0, 2, 0)  # row 1 is not in this batch
step(1)
