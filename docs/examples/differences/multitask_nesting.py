from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):
    inner = lockstep.GradientDescentOptimizer(0.5)
    wrapped = lockstep.MultitaskOptimizerWrapper(inner)
    try:
        lockstep.MultitaskOptimizerWrapper(wrapped)
        print(f"{name}: accepted")
    except TypeError as error:
        print(f"{name}: {error}")
