from itertools import product

from lockstep.scalers import automatic_policy, start_automatic, step_automatic

inf = float("inf")
_, policy = automatic_policy("backoff", {"scale_max": 8.0, "step_window": 2})
looks = [(False, amax) for amax in (inf, inf, 1.0, 1.0)]
allowed = {}
for orders in product(("before", "after"), repeat=len(looks)):
    state, scales = start_automatic(policy), []
    for i, (order, look) in enumerate(zip(orders, looks, strict=True)):
        read = i if order == "before" else i + 1
        state = step_automatic(policy, state._replace(iteration=read), *look)
        scales.append(float(state.loss_scale))
    allowed.setdefault(tuple(scales), orders)
ours = next(iter(allowed))  # read before the increment, always
for scales in sorted(allowed):
    print(f"{list(scales)}{'  default and strict' if scales == ours else ''}")
