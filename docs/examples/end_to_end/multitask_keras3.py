import tempfile
from pathlib import Path

import keras
import numpy as np
from sklearn.datasets import load_digits

from lockstep import keras3 as lockstep

# Two tasks on 1797 images of digits. Every tenth batch alone has labels of the second.
digits = load_digits()
pixels, number = digits.data.astype("float32") / 16, digits.target
present = np.repeat(np.arange(30) % 10 == 0, 50).astype("float32")
labels = {"number": number, "odd": number % 2}
weights = {"number": np.ones(1500, "float32"), "odd": present}


def build():
    keras.utils.set_random_seed(0)
    images = keras.Input([64])
    hidden = keras.layers.Dense(32, "relu")(images)
    heads = {
        "number": keras.layers.Dense(10, name="number")(hidden),
        "odd": keras.layers.Dense(2, name="odd")(hidden),
    }
    net = keras.Model(images, heads)
    # An absent task's head and its Adam moments stay as they are.
    optimizer = lockstep.MultitaskOptimizerWrapper(keras.optimizers.Adam(0.005))
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    net.compile(optimizer, loss={"number": entropy, "odd": entropy})
    return net


def fit(net, epochs):
    net.fit(
        pixels[:1500],
        {name: values[:1500] for name, values in labels.items()},
        sample_weight=weights,
        batch_size=50,
        epochs=epochs,
        shuffle=False,
        verbose=0,
    )


net = build()
fit(net, epochs=8)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.keras")
    net.save(path)
    fit(net, epochs=1)
    resumed = keras.models.load_model(path)
fit(resumed, epochs=1)
scores = net.predict(pixels[1500:], verbose=0)
right = [np.mean(scores[k].argmax(1) == v[1500:]) for k, v in labels.items()]
print("both tasks above 80%:", min(right) > 0.8)
same = map(np.array_equal, net.get_weights(), resumed.get_weights())
print("the resumed run has the same weights:", all(same))
