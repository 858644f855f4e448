import numpy as np

from lockstep.reference import lr_policies, strict

arguments = {"decay_steps": 10, "min_lr": 0.25, "begin_decay_at": 4, "warmup_steps": 2}
steps = np.array([0, 1, 4, 14, 1000])
for name, policies in ("default", lr_policies), ("strict", strict.lr_policies):
    rates = policies.inv_poly_decay(steps, 1.0, **arguments)
    print(f"{name}: {', '.join(f'{rate:.4f}' for rate in rates)}")
