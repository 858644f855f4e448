from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    scaler = lockstep.AutomaticLossScaler("LogMax", {"overflow_std_dev": 0.0})
    scales = []
    for amax in (8.0, 8.0, 8.0, float("inf"), 8.0, 0.0, 8.0):
        scaler.update_op(False, amax)
        scales.append(round(float(scaler.loss_scale), 1))
    print(f"{name}: {scales}")
    params = {"log_max": 4.0, "overflow_std_dev": 0.0}
    scaler = lockstep.AutomaticLossScaler("LogMax", params)
    scaler.update_op(False, 8.0)
    largest = 8.0 * float(scaler.loss_scale)
    print(f"{name}: log_max 4, the largest gradient is scaled to {largest:.0f}")
