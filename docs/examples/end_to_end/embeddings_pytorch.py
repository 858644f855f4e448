import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits

from lockstep import pytorch as lockstep

# A digit is the bag of its dark pixels; each of the 64 pixels has a row of a table.
digits = load_digits()
bags = [torch.tensor(row > 8).nonzero()[:, 0] for row in digits.data]
labels = torch.tensor(digits.target)


def build():
    torch.manual_seed(0)
    table = torch.nn.EmbeddingBag(64, 16, mode="sum", sparse=True)
    torch.nn.init.normal_(table.weight, std=0.1)
    head = torch.nn.Linear(16, 10)
    sgd = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    # After each step, the rows that the batch touched are cut to the norm 1.
    opt = lockstep.VariableClippingOptimizer(sgd, {table.weight: [1]}, max_norm=1.0)
    return table, head, opt


def scores(table, head, rows):
    sizes = torch.tensor([0, *(len(bags[row]) for row in rows[:-1])])
    return head(table(torch.cat([bags[row] for row in rows]), sizes.cumsum(0)))


def fit(table, head, opt, epoch):
    order = torch.randperm(1500, generator=torch.Generator().manual_seed(epoch))
    for rows in order.split(30):
        opt.zero_grad()
        output = scores(table, head, rows.tolist())
        torch.nn.functional.cross_entropy(output, labels[rows]).backward()
        opt.step()


table, head, opt = build()
for epoch in range(5):
    fit(table, head, opt, epoch)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.pt")
    states = [part.state_dict() for part in (table, head, opt)]
    torch.save(states, path)
    fit(table, head, opt, epoch=5)
    resumed = build()
    for part, state in zip(resumed, torch.load(path), strict=True):
        part.load_state_dict(state)
fit(*resumed, epoch=5)
test = list(range(1500, 1797))
right = (scores(table, head, test).argmax(1) == labels[test]).float().mean()
print("accuracy above 70%:", right.item() > 0.7)
norm = table.weight.norm(dim=1).max().item()
same = torch.equal(table.weight, resumed[0].weight)
print(f"largest norm of a row: {norm:.2f} of the limit")
print("the resumed run has the same table:", same)
