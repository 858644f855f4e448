import torch

w = torch.nn.Parameter(torch.tensor([1.0, 2.0]))
opt = torch.optim.SGD([w], lr=0.5)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0)


def step(*gradient):
    opt.zero_grad()
    loss = (w * torch.tensor(gradient)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_([w], 2.5)
    scaler.step(opt)
    scaler.update()


step(3.0, 4.0)
print(w.tolist(), "scale", scaler.get_scale())
for _ in range(200):
    step(float("inf"), 4.0)
print(w.tolist(), "scale", scaler.get_scale())
step(3.0, 4.0)
print(w.tolist(), "scale", scaler.get_scale())
