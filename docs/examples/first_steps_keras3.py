import tempfile
from pathlib import Path

import keras
import numpy as np

from lockstep.keras3 import (
    MixedPrecisionLossScaleOptimizer,
    MultitaskOptimizerWrapper,
    pipeline_of,
)

tasks = MultitaskOptimizerWrapper(keras.optimizers.Adam(1e-3))
optimizer = MixedPrecisionLossScaleOptimizer(tasks, "dynamic", clip_norm=1.0)

inputs = keras.Input([4])
names = ("speech", "text")
heads = {name: keras.layers.Dense(1, name=name)(inputs) for name in names}
model = keras.Model(inputs, heads)
# Eager steps have a last_step.
model.compile(optimizer, dict.fromkeys(names, "mse"), run_eagerly=True)
print(pipeline_of(optimizer))

for speech, text in ((1.0, 1.0), (0.0, 1.0), (1.0, np.inf)):
    weights = {"speech": np.full(8, speech), "text": np.full(8, text)}
    targets = dict.fromkeys(names, np.full([8, 1], 9.0))
    model.fit(np.ones([8, 4]), targets, sample_weight=weights, verbose=0)
    report, scale = optimizer.last_step, float(optimizer.loss_scale)
    print(report.applied, report.skipped, report.nonfinite, scale)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "run.keras")
    model.save(path)
    model = keras.models.load_model(path)  # after the import of lockstep.keras3
print(int(model.optimizer.skipped_steps), float(model.optimizer.loss_scale))
