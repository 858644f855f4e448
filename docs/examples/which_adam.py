import inspect

import keras
import tensorflow as tf
import torch

from lockstep import keras3, pytorch
from lockstep import tf as lockstep_tf

v1 = tf.compat.v1.train
gradient = 1e-7


def defaults(adam):
    parameters = inspect.signature(adam).parameters
    epsilon = parameters.get("epsilon") or parameters["eps"]
    decay = parameters.get("weight_decay")
    return f"epsilon {epsilon.default}, decay {decay.default if decay else None}"


def pytorch_step(adam):
    w = torch.nn.Parameter(torch.zeros(1))
    w.grad = torch.full((1,), gradient)
    adam([w], lr=1.0).step()
    return w.item()


def tf_step(adam):
    w = tf.Variable([0.0])
    adam(1.0).apply_gradients([(tf.constant([gradient]), w)])
    return float(w[0])


def keras_step(adam):
    w = keras.Variable([0.0])
    adam(1.0).apply([tf.constant([gradient])], [w])
    return float(w[0])


for name, adam, step in (
    ("torch.optim.Adam", torch.optim.Adam, pytorch_step),
    ("torch.optim.AdamW", torch.optim.AdamW, pytorch_step),
    ("tf.compat.v1.train.AdamOptimizer", v1.AdamOptimizer, tf_step),
    ("keras.optimizers.Adam", keras.optimizers.Adam, keras_step),
    ("keras.optimizers.AdamW", keras.optimizers.AdamW, keras_step),
    ("lockstep.pytorch.AdamOptimizer", pytorch.AdamOptimizer, pytorch_step),
    ("lockstep.tf.AdamOptimizer", lockstep_tf.AdamOptimizer, tf_step),
    ("lockstep.keras3.AdamOptimizer", keras3.AdamOptimizer, keras_step),
):
    print(f"{name:33}", f"{step(adam):.4f}", defaults(adam))
