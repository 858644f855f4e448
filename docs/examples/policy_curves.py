"""The learning rates of the policies, by default and as the original computed them."""

from functools import partial

import numpy as np

from lockstep.reference import lr_policies

steps = np.arange(1000)
RATE = 0.5
POLICIES = {
    "exp": partial(
        lr_policies.exp_decay,
        decay_steps=200,
        decay_rate=0.3,
        use_staircase_decay=False,
        begin_decay_at=200,
    ),
    "poly": partial(
        lr_policies.poly_decay, decay_steps=1000, power=2, warmup_steps=400
    ),
    "poly, delayed": partial(
        lr_policies.poly_decay,
        decay_steps=600,
        power=2,
        warmup_steps=400,
        begin_decay_at=400,
    ),
    "cosine": partial(lr_policies.cosine_decay, decay_steps=1000, min_lr=0.2),
    "inverse poly": partial(
        lr_policies.inv_poly_decay, decay_steps=500, min_lr=0.1, warmup_steps=200
    ),
    "noam": partial(
        lr_policies.transformer_policy, d_model=64, warmup_steps=100, coefficient=80
    ),
}

default = {name: policy(steps, RATE) for name, policy in POLICIES.items()}
strict = {name: policy(steps, RATE, strict=True) for name, policy in POLICIES.items()}

print("policy               peak / rate  last / rate   original: peak, last")
for name in POLICIES:
    ours, theirs = (
        f"{rates.max() / RATE:.2f} {rates[-1] / RATE:12.3f}"
        for rates in (default[name], strict[name])
    )
    print(f"{name:18} {ours:>24}   {theirs:>20}")


def draw(figure):
    """Draw the learning rates on a Matplotlib figure."""
    panels = figure.subplots(2, 3, sharex=True, sharey=True)
    for panel, name in zip(panels.flat, POLICIES, strict=True):
        panel.plot(steps, strict[name], "--", color="#d55e00", label="the original")
        panel.plot(steps, default[name], color="#0072b2", label="default")
        panel.set_title(name)
    panels[0, 0].set_ylabel("learning rate")
    panels[1, 0].set_ylabel("learning rate")
    for panel in panels[1]:
        panel.set_xlabel("step")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2
    )
