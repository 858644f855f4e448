import numpy as np

from lockstep.reference import lr_policies, strict

steps = np.arange(201)
for name, policies in ("default", lr_policies), ("strict", strict.lr_policies):
    rates = policies.poly_decay(steps, 1.0, decay_steps=200, warmup_steps=100)
    print(f"{name}: largest rate {rates.max()}, asked for 1.0")
    rate = policies.poly_decay(50, 1.0, 100, min_lr=0.1, warmup_steps=1000)
    print(f"{name}: warm-up rate 0.05 became {rate}, for min_lr is 0.1")
    rates = policies.piecewise_constant(steps[10:12], 1.0, [10], [0.5])
    print(f"{name}: boundary 10, rates at steps 10 and 11: {rates.tolist()}")
