import tensorflow as tf

from lockstep import tf as lockstep

w = tf.Variable([[1.0, 2.0]])
sgd = tf.compat.v1.train.GradientDescentOptimizer(0.5)
clipped = lockstep.VariableClippingOptimizer(sgd, {w.ref(): [1]}, max_norm=1.0)
scaled = lockstep.MixedPrecisionLossScaleOptimizer(clipped, "dynamic", clip_norm=5.0)
opt = lockstep.MultitaskOptimizerWrapper(scaled)

for number, stage in enumerate(lockstep.pipeline_of(opt), 1):
    print(number, stage)
