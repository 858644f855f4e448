import torch

w = torch.nn.Parameter(torch.ones(1))
opt = torch.optim.SGD([w], lr=0.8)
scheduler = torch.optim.lr_scheduler.PolynomialLR(opt, total_iters=4, power=2.0)
scaler = torch.amp.GradScaler("cpu")

for gradient in (1.0, float("inf"), 1.0, 1.0):
    rate = scheduler.get_last_lr()[0]
    opt.zero_grad()
    scaler.scale((w * gradient).sum()).backward()
    before = w.item()
    scaler.step(opt)
    scaler.update()
    scheduler.step()
    print(f"rate {rate:g}", "applied" if w.item() != before else "skipped")
