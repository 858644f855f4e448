from lockstep import reference
from lockstep.reference import strict

inf, nan = float("inf"), float("nan")
for name, lockstep in ("default", reference), ("strict", strict):
    scaler = lockstep.AutomaticLossScaler("Backoff", {"step_window": 2})
    scales = []
    for amax in (inf, inf, 1.0, 1.0, nan):
        scaler.update_op(False, amax)
        scales.append(float(scaler.loss_scale))
    print(f"{name}: {scales}")
