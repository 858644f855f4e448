from itertools import product

import numpy as np

from lockstep import reference
from lockstep.reference import strict

rate, decay, larc = 0.5, 0.25, {"larc_eta": 0.125}
gradients = [np.float32([g]) for g in (2.0, 1.0)]


def steps(lockstep):
    w, left = lockstep.Variable("w", [4.0], np.float32), iter(gradients)
    step = lockstep.optimize_loss(
        lambda: [next(left)],
        "AdamW",
        {"weight_decay": decay, "epsilon": 1.0},
        lambda global_step: rate,
        var_list=[w],
        larc_params=larc,
    )
    for _ in gradients:
        step()
        yield round(w.value.item(), 6)


def in_order(orders):
    w = reference.Variable("w", [4.0], np.float32)
    adam = reference.AdamWOptimizer(rate * decay, rate, epsilon=1.0)
    for order, gradient in zip(orders, gradients, strict=True):
        decayed = w.value * np.float32(1 - rate * decay)
        seen = w if order == "before" else reference.Variable("w", decayed)
        pairs = [(gradient, seen)]
        ((scaled, _),) = reference.post_process_gradients(pairs, [], rate, None, larc)
        adam.apply_gradients([(scaled, w)])
        yield round(w.value.item(), 6)


ours = {"default": tuple(steps(reference)), "strict": tuple(steps(strict))}
for orders in product(("before", "after"), repeat=len(gradients)):
    trace = tuple(in_order(orders))
    names = [name for name, weights in ours.items() if weights == trace]
    print(f"{list(trace)}  {' and '.join(names)}".rstrip())
