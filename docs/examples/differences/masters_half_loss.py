import torch

from lockstep import pytorch
from lockstep.pytorch import strict

for name, lockstep in ("default", pytorch), ("strict", strict):
    w = torch.nn.Parameter(torch.ones(1).half())
    sgd = lockstep.GradientDescentOptimizer([("w", w)], 0.5)
    scaler = lockstep.AutomaticLossScaler("Backoff")
    opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, scaler)
    try:
        opt.minimize(w.sum())  # float16, as w is
        print(f"{name}: {w.tolist()}")
    except TypeError as error:
        print(f"{name}: {error}")
