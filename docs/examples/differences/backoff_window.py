from lockstep import reference
from lockstep.reference import strict

inf = float("inf")
for name, lockstep in ("default", reference), ("strict", strict):
    scaler = lockstep.AutomaticLossScaler("Backoff", {"step_window": 2})
    scales = []
    for amax in (inf, inf, inf, 1.0, 1.0, 1.0, 1.0):
        scaler.update_op(False, amax)
        scales.append(float(scaler.loss_scale))
    print(f"{name}: {scales}")
