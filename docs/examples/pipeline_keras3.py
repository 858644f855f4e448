import keras

from lockstep import keras3 as lockstep

w = keras.Variable([[1.0, 2.0]])
sgd = keras.optimizers.SGD(0.5)
clipped = lockstep.VariableClippingOptimizer(sgd, {w.path: [1]}, max_norm=1.0)
scaled = lockstep.MixedPrecisionLossScaleOptimizer(clipped, "dynamic", clip_norm=5.0)
opt = lockstep.MultitaskOptimizerWrapper(scaled)

for number, stage in enumerate(lockstep.pipeline_of(opt), 1):
    print(number, stage)
