import torch

w = torch.nn.Parameter(torch.zeros(2))
opt = torch.optim.SGD([w], lr=1.0)

batches = [[6.0, 0.0], [0.0, 8.0], [1.0, 0.0], [0.0, 1.0]]
for number, gradient in enumerate(batches, 1):
    loss = (w * torch.tensor(gradient)).sum()
    (loss / 2).backward()
    if number % 2 == 0:
        torch.nn.utils.clip_grad_norm_([w], 2.5)
        opt.step()
        opt.zero_grad()
        print(w.tolist())
