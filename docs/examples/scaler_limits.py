"""What loss scales do while every step overflows, and after it."""

import torch

from lockstep.pytorch import (
    AutomaticLossScaler,
    DynamicLossScale,
    MixedPrecisionOptimizerWrapper,
)

BEFORE, OVERFLOWS, AFTER = 10, 200, 150
batches = [1.0] * BEFORE + [float("inf")] * OVERFLOWS + [1.0] * AFTER


def with_lockstep(loss_scale):
    """Return the scale after each step, and the weight at the end."""
    w = torch.nn.Parameter(torch.ones(1))
    sgd = torch.optim.SGD([w], lr=2**-10)
    opt = MixedPrecisionOptimizerWrapper(sgd, loss_scale, at_floor="ignore")
    scales = []
    for batch in batches:
        opt.zero_grad()
        opt.scale_loss((w * batch).sum()).backward()
        opt.step()
        scales.append(float(opt.loss_scale))
    return scales, w.item()


def with_grad_scaler():
    """Return the same for PyTorch's scaler, used as in its documentation."""
    w = torch.nn.Parameter(torch.ones(1))
    sgd = torch.optim.SGD([w], lr=2**-10)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=10)
    scales = []
    for batch in batches:
        sgd.zero_grad()
        scaler.scale((w * batch).sum()).backward()
        scaler.step(sgd)
        scaler.update()
        scales.append(scaler.get_scale())
    return scales, w.item()


results = {
    "DynamicLossScale": with_lockstep(DynamicLossScale(2.0**15, 10)),
    "Backoff": with_lockstep(AutomaticLossScaler("Backoff", {"step_window": 10})),
    "LogMax": with_lockstep(AutomaticLossScaler("LogMax")),
    "torch GradScaler": with_grad_scaler(),
}
print("scale:               before    lowest   at the end    weight at the end")
for name, (scales, weight) in results.items():
    numbers = f"{scales[BEFORE - 1]:10.0f} {min(scales):9.0f} {scales[-1]:12.0f}"
    print(f"{name:16} {numbers} {weight:20.3f}")


def draw(figure):
    """Draw the scales on a Matplotlib figure."""
    panel = figure.subplots()
    colors = ("#0072b2", "#7a4d8f", "#6b7280", "#d55e00")
    styles = ("-", "--", "-.", ":")
    for (name, (scales, _)), color, style in zip(
        results.items(), colors, styles, strict=True
    ):
        panel.plot(scales, color=color, ls=style, label=name)
    panel.set_yscale("log", base=2)
    panel.set_yticks([2.0**16, 1.0, 2.0**-50, 2.0**-100, 2.0**-149])
    panel.set_ylim(2.0**-155, 2.0**25)
    panel.set_xlabel("step")
    panel.set_ylabel("loss scale")
    panel.legend()
