import numpy as np
import torch

from lockstep import pytorch, reference

weights = {
    "default on PyTorch": (pytorch, torch.nn.Parameter(torch.tensor([4.0]))),
    "strict, and the reference": (reference, reference.Variable("w", np.float32([4]))),
}
for name, (lockstep, w) in weights.items():
    getter = lockstep.AGNCustomGetter("cpu")
    given = getter([w])
    on_torch = lockstep is pytorch
    arguments = [given] if on_torch else []
    adam = lockstep.AdamOptimizer(*arguments, learning_rate=0.5, beta1=0.5)
    opt = lockstep.AGNOptimizer(adam, 1, getter, communication_period=2)
    opt.get_init_op(0)
    for _ in range(4):  # two pushes
        opt.apply_gradients([(torch.ones(1) if on_torch else np.ones(1, "f4"), w)])
    pulled = w if on_torch else w.value  # from the center, after the second push
    print(f"{name}: the center's weight is {pulled.tolist()[0]:.4f}")
