import keras
from keras import ops

from lockstep import keras3 as lockstep

w = keras.Variable([1.0, 2.0], dtype="float16", name="w")
train = lockstep.optimize_loss(
    lambda x: ops.sum(ops.cast(w, "float32") * x),
    "Momentum",
    {"momentum": 0.5},
    lambda step: lockstep.lr_policies.poly_decay(step, 0.5, decay_steps=4),
    var_list=[w],
    dtype="mixed",
    loss_scaling="Backoff",
    clip_gradients=1.5,
    iter_size=2,
)
print(train.pipeline)


def step(x):
    train(x)
    done = int(train.global_step)
    print(w.numpy().tolist(), f"{done} steps,", train.last_step.reason)


step([3.0, 0.0])
step([-3.0, 3.0])  # the first element cancels; the norm is 1.5
step([8.0, 0.0])  # 8 * 16384 is too large for float16
step([1.0, 0.0])
step([3.0, 0.0])
# The norm is 1.5 * sqrt(2), which is clipped. Elsewhere the second element ends at
# 0.5708...: Keras' momentum keeps the rate of the step that it comes from.
step([0.0, 3.0])
