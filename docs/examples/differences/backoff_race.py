from itertools import product

from lockstep.messages.scaling.automatic_scaler import automatic_policy
from lockstep.reference.scaling.backoff import start_backoff, step_backoff

inf = float("inf")
policy = automatic_policy("backoff", {"scale_max": 8.0, "step_window": 2})
looks = [(False, amax) for amax in (inf, inf, 1.0, 1.0)]
allowed = {}
for orders in product(("before", "after"), repeat=len(looks)):
    state, scales = start_backoff(policy), []
    for i, (order, look) in enumerate(zip(orders, looks, strict=True)):
        read = i if order == "before" else i + 1
        state = step_backoff(policy, state._replace(iteration=read), *look)
        scales.append(float(state.loss_scale))
    allowed.setdefault(tuple(scales), orders)
ours = next(iter(allowed))  # read before the increment, always
for scales in sorted(allowed):
    print(f"{list(scales)}{'  default and strict' if scales == ours else ''}")
