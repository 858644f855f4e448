from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    scaler = lockstep.AutomaticLossScaler("LogMax", {"overflow_std_dev": 0.0})
    scales = []
    for amax in (8.0, 8.0, 8.0, float("inf"), 8.0, 0.0, 8.0):
        scaler.update_op(False, amax)
        scales.append(round(float(scaler.loss_scale), 1))
    print(f"{name}: {scales}")
