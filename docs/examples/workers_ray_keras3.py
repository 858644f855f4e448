import keras
import numpy as np
import ray

from lockstep.keras3 import AGNCustomGetter, AGNOptimizer
from lockstep.ray import RayCenter


@ray.remote
def train(number):
    layers = [keras.Input((2,)), keras.layers.Dense(1, name="out")]
    model = keras.Sequential(layers, name="plane")
    getter = AGNCustomGetter("/cpu:0", center="ray://plane")
    getter(model)
    sgd = keras.optimizers.SGD(0.05, momentum=0.5)
    worker = AGNOptimizer(sgd, 2, getter, communication_period=5)
    hook = worker.make_session_run_hook(is_chief=number == 0, task_index=number)
    model.compile(worker, "mse", run_eagerly=True)
    x = np.random.default_rng(number).normal(size=(3200, 2)).astype("float32")
    y = x @ np.float32([[2.0], [-1.0]])
    model.fit(x, y, batch_size=16, verbose=0, callbacks=[hook])


ray.init(log_to_driver=False)
ray.get([train.remote(number) for number in range(2)])
center = RayCenter("plane")
print(center.end()["rounds"], "rounds")
print(center.weights()["plane/out/kernel"].round(3).T.tolist())
ray.shutdown()
