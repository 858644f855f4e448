import tempfile
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

from lockstep import keras3 as lockstep

# A digit is the bag of its 20 darkest pixels; each of the 64 pixels has a row.
digits = load_digits()
bags = np.argsort(-digits.data, axis=1, kind="stable")[:, :20].astype("int32")
labels = digits.target


def build():
    keras.utils.set_random_seed(0)
    pixels = keras.Input([20], dtype="int32")
    table = keras.layers.Embedding(64, 16)
    mean = keras.layers.GlobalAveragePooling1D()
    net = keras.Sequential([pixels, table, mean, keras.layers.Dense(10)])
    sgd = keras.optimizers.SGD(2.0)
    # After each step, the rows that the batch touched are cut to the norm 2.
    dims = {table.embeddings.path: [1]}
    opt = lockstep.VariableClippingOptimizer(sgd, dims, max_norm=2.0)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(opt, loss=entropy)
    return net


def fit(net, epochs):
    settings = {"batch_size": 30, "shuffle": False, "verbose": 0}
    net.fit(bags[:1500], labels[:1500], epochs=epochs, **settings)


net = build()
fit(net, epochs=9)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.keras")
    net.save(path)
    fit(net, epochs=1)
    resumed = keras.models.load_model(path)
fit(resumed, epochs=1)
table, again = (each.get_weights()[0] for each in (net, resumed))
right = net.predict(bags[1500:], verbose=0).argmax(1) == labels[1500:]
print("accuracy above 70%:", np.mean(right) > 0.7)
norm = np.linalg.norm(table, axis=1).max() / 2
print(f"largest norm of a row: {norm:.2f} of the limit")
print("the resumed run has the same table:", np.array_equal(table, again))
