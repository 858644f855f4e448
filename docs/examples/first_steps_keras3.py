import tempfile
from pathlib import Path

import keras
import numpy as np

from lockstep import keras3 as lockstep

adam = lockstep.MultitaskOptimizerWrapper(keras.optimizers.Adam(1e-3))
optimizer = lockstep.MixedPrecisionLossScaleOptimizer(adam, "dynamic", clip_norm=1.0)

inputs = keras.Input([4])
heads = {name: keras.layers.Dense(1, name=name)(inputs) for name in ("speech", "text")}
model = keras.Model(inputs, heads)
model.compile(optimizer, dict.fromkeys(heads, "mse"), run_eagerly=True)  # for last_step
print(lockstep.pipeline_of(optimizer))

for speech, text in ((1.0, 1.0), (0.0, 1.0), (1.0, np.inf)):
    weights = {"speech": np.full(8, speech), "text": np.full(8, text)}
    targets = dict.fromkeys(heads, np.full([8, 1], 9.0))
    model.fit(np.ones([8, 4]), targets, sample_weight=weights, verbose=0)
    report = optimizer.last_step
    print(report.applied, report.skipped, report.nonfinite, float(optimizer.loss_scale))

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.keras")
    model.save(path)
    model = keras.models.load_model(path)  # after the import of lockstep.keras3
print(int(model.optimizer.skipped_steps), float(model.optimizer.loss_scale))
