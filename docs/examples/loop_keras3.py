import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
import numpy as np

from lockstep.keras3 import MultitaskOptimizerWrapper

keras.utils.set_random_seed(0)
images = keras.Input((64,))
features = keras.layers.Dense(32, activation="relu")(images)
outputs = {n: keras.layers.Dense(1, name=n)(features) for n in ("digit", "parity")}
model = keras.Model(images, outputs)

opt = MultitaskOptimizerWrapper(keras.optimizers.Adam(1e-3))
model.compile(opt, loss={name: "mse" for name in outputs})

batch = np.random.default_rng(0).normal(size=(16, 64)).astype("float32")
known = {"digit": np.ones(16), "parity": np.zeros(16)}  # nobody labelled the parity
before = model.get_layer("parity").get_weights()[0]
model.fit(batch, {n: np.ones(16) for n in outputs}, 16, sample_weight=known, verbose=0)
print((model.get_layer("parity").get_weights()[0] == before).all())  # left alone
