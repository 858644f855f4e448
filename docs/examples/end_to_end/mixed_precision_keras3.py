import tempfile
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

from lockstep import keras3 as lockstep

digits = load_digits()
pixels, labels = digits.data.astype("float16") / 16, digits.target


def build():
    keras.utils.set_random_seed(0)
    layers = [
        keras.Input([64], dtype="float16"),
        keras.layers.Dense(32, "relu", dtype="float16"),  # float16 weights
        keras.layers.Dense(10, dtype="float16"),
        keras.layers.Activation("linear", dtype="float32"),
    ]
    net = keras.Sequential(layers)
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    # The optimizer trains float32 masters. A loss scale of 2**24 is too large at first.
    scale = lockstep.DynamicLossScale(initial_loss_scale=2**24)
    opt = lockstep.MixedPrecisionOptimizerWrapper(sgd, loss_scale=scale)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(opt, loss=entropy)
    return net


def fit(net, epochs):
    settings = {"batch_size": 50, "shuffle": False, "verbose": 0}
    net.fit(pixels[:1500], labels[:1500], epochs=epochs, **settings)


net = build()
fit(net, epochs=4)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.keras")
    net.save(path)  # masters and loss scale included
    fit(net, epochs=1)
    resumed = keras.models.load_model(path)
fit(resumed, epochs=1)
right = net.predict(pixels[1500:], verbose=0).argmax(1) == labels[1500:]
print("accuracy above 80%:", np.mean(right) > 0.8)
print("steps were skipped:", int(net.optimizer.skipped_steps) > 0)
print("the loss scale fell:", float(net.optimizer.loss_scale) < 2**24)
same = map(np.array_equal, net.get_weights(), resumed.get_weights())
print("the resumed run has the same weights:", all(same))
