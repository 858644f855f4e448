"""Which updates do float16 weights lose, and do float32 masters keep them?"""

import torch

from lockstep.pytorch import MixedPrecisionOptimizerWrapper

RATIOS = [256, 512, 1024, 2048, 2560, 3072, 3584, 4096, 8192, 16384]
STEPS = 100

torch.manual_seed(0)
start = (2 ** (4 + 4 * torch.rand(4096))).half()  # from 16 to 256


def lost_and_moved(ratio, with_masters):
    """Return the share of lost updates, and how far the weights came."""
    w = torch.nn.Parameter(start.clone())
    w.grad = start / ratio
    opt = torch.optim.SGD([w], lr=1.0)  # the update is the gradient
    trained = w
    if with_masters:
        opt = MixedPrecisionOptimizerWrapper(opt)
        trained = opt.master(w)
    lost = 0.0
    for _ in range(STEPS):
        before = trained.detach().clone()
        opt.step()
        lost += (trained == before).double().mean().item() / STEPS
    moved = (start.double() - w.detach().double()) / (STEPS * w.grad.double())
    return lost, moved.median().item()


float16 = [lost_and_moved(ratio, with_masters=False) for ratio in RATIOS]
masters = [lost_and_moved(ratio, with_masters=True) for ratio in RATIOS]
print(f"weight / update  lost in float16, with masters  moved after {STEPS} steps")
for ratio, (lost, moved), (kept_lost, kept_moved) in zip(
    RATIOS, float16, masters, strict=True
):
    shares = f"{lost:15.0%} {kept_lost:13.0%}"
    print(f"{ratio:15} {shares}  {moved:14.0%} and {kept_moved:.0%}")


def draw(figure):
    """Draw the share of lost updates on a Matplotlib figure."""
    panel = figure.subplots()
    for rows, color, mark, name in (
        (float16, "#d55e00", "o", "float16 weights"),
        (masters, "#0072b2", "s", "with float32 masters"),
    ):
        lost = [100 * share for share, _ in rows]
        panel.semilogx(RATIOS, lost, color=color, marker=mark, label=name, base=2)
    ticks = [256, 1024, 2048, 4096, 16384]
    panel.set_xticks(ticks, labels=map(str, ticks))
    panel.set_xlabel("weight / update")
    panel.set_ylabel("lost updates (%)")
    panel.legend()
