import numpy as np

from lockstep import reference
from lockstep.reference import strict

for name, lockstep in ("default", reference), ("strict", strict):

    def variable(dtype, lockstep=lockstep):
        return lockstep.Variable("w", [1.0], dtype)

    one, w = np.float32([1]), variable(np.float32)
    attempts = {
        "a tuple": ((one, w),),
        "an absent gradient": [(one, w), (None, variable(np.float32))],
        "float16": [(np.float16([1]), variable(np.float16))],
    }
    for what, pairs in attempts.items():
        try:
            lockstep.NovoGrad().apply_gradients(pairs)
            print(f"{name}: {what}: applied")
        except (TypeError, ValueError) as error:
            print(f"{name}: {what}: {error}")
    pairs = [(np.float32([4]), variable(np.float32))]
    lockstep.NovoGrad().apply_gradients(pairs)
    print(f"{name}: the gradient in the list is now {pairs[0][0].item():g}")
