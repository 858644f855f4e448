from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    calls = (
        (lockstep.DynamicLossScale, {"increment_period": 0}),
        (lockstep.AutomaticLossScaler, {"params": {"step_factor": 0.5}}),
        (lockstep.MomentumOptimizer, {"learning_rate": 0.1, "momentum": 1.9}),
    )
    for make, arguments in calls:
        try:
            make(**arguments)
            print(f"{name}: {make.__name__} made with {arguments}")
        except ValueError as error:
            print(f"{name}: {error}")
