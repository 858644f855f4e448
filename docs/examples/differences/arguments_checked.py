from lockstep import reference

try:
    reference.MomentumOptimizer(0.1, momentum=1.9)
except ValueError as error:
    print(error)
