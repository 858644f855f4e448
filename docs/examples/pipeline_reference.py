from lockstep import reference as lockstep

w = lockstep.Variable("w", [[1.0, 2.0]])
sgd = lockstep.GradientDescentOptimizer(0.5)
clipped = lockstep.VariableClippingOptimizer(sgd, {w: [1]}, max_norm=1.0)
scaled = lockstep.MixedPrecisionLossScaleOptimizer(clipped, "dynamic", clip_norm=5.0)
opt = lockstep.MultitaskOptimizerWrapper(scaled)

for number, stage in enumerate(lockstep.pipeline_of(opt), 1):
    print(number, stage)
