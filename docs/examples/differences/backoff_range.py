from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    scaler = lockstep.AutomaticLossScaler("Backoff")
    scaler.update_op(False, float("nan"))
    print(f"{name}: after a NaN maximum {scaler.loss_scale}")
    for params in {"scale_min": 32.0, "scale_max": 8.0}, {"step_factor": 0.5}:
        try:
            lockstep.AutomaticLossScaler("Backoff", params)
            print(f"{name}: {params} accepted")
        except ValueError as error:
            print(f"{name}: {error}")
