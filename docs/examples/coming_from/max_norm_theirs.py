import torch

torch.manual_seed(0)
table = torch.nn.Embedding(10, 4, max_norm=1.0)
opt = torch.optim.SGD(table.parameters(), lr=2.0)

table(torch.tensor([3])).sum().backward()
opt.step()
print(f"norm of the row that was trained: {table.weight[3].norm().item():.6f}")

opt.zero_grad()
logits = table(torch.tensor([1])) @ table.weight.T  # input and output are tied
second = table(torch.tensor([2])).sum()
try:
    (logits.logsumexp(1).sum() + second).backward()
except RuntimeError as error:
    print("RuntimeError:", str(error).partition(":")[0])
