import keras
import numpy as np

from lockstep.keras3 import PolicySchedule, lr_policies

rate = PolicySchedule("poly_decay", learning_rate=0.5, decay_steps=4, min_lr=0.125)
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(rate), "mse")
for _ in range(4):
    print(float(model.optimizer.learning_rate))
    model.fit(np.ones((2, 3)), np.ones((2, 1)), verbose=0)

print(lr_policies.poly_decay(2, 0.5, decay_steps=4, min_lr=0.125).numpy())
