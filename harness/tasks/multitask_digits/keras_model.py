"""The three tasks in Keras 3; one compiled function takes many steps per call."""

from __future__ import annotations

import keras
import tensorflow as tf
from keras import ops

from harness.tasks import own
from harness.tasks.absent_heads.training import Recipe, by_head
from harness.tasks.multitask_digits.task import ABSENTEE, TASKS, Images, Plan
from lockstep import keras3 as lockstep


class Trainer:
    """Training inside ``tf.function``, traced once for all runs of this recipe.

    All data that differs between runs is in variables, which a new run sets again.
    """

    def __init__(self, recipe: Recipe, device: str) -> None:
        self.recipe = recipe
        self.device = {"cuda": "gpu"}.get(device, device)
        self.loop = None

    def reset(self, plan: Plan) -> None:
        """Use the images and first weights of a plan; reset all state."""
        if self.loop is None:
            with keras.device(f"{self.device}:0"):
                self.compile(plan)
        values = *plan.training, *plan.held_out, *plan.weights.values()
        variables = *self.training, *self.held_out, *self.weights.values()
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        for variable, value in self.first_state:
            variable.assign(value)

    def compile(self, plan: Plan) -> None:
        """Make the variables, trace the loop and save the initial state."""
        self.training = Images(*map(untrained, plan.training))
        self.held_out = Images(*map(untrained, plan.held_out))
        self.weights = {name: keras.Variable(w) for name, w in plan.weights.items()}
        self.heads = [self.weights[f"head/{task}"] for task in TASKS]
        self.probes = [self.weights[f"probe/{task}"] for task in TASKS]
        self.paths = untrained(ops.zeros(len(TASKS)))
        variables, arguments = list(self.weights.values()), dict(self.recipe.arguments)
        if self.recipe.optimizer:
            self.optimizer = getattr(lockstep, self.recipe.optimizer)(**arguments)
        else:
            kind = keras.optimizers.Optimizer
            self.optimizer = own.make(arguments, variables, kind)
        if self.recipe.wrapper != "none":
            self.optimizer = lockstep.MultitaskOptimizerWrapper(self.optimizer)
        self.optimizer.build(variables)
        batches = tf.TensorSpec([None, plan.batches.shape[1]], tf.int32)
        weights = tf.TensorSpec([None, len(TASKS)], tf.float32)
        self.loop = tf.function(self.steps, input_signature=[batches, weights])
        self.loop.get_concrete_function()
        state = [self.paths, *self.optimizer.variables]
        self.first_state = [(variable, variable.numpy()) for variable in state]

    def advance(self, batches, weights) -> None:
        """Take one step per batch: rows [steps, batch], weights [steps, tasks]."""
        self.loop(batches, weights)

    def steps(self, batches, weights) -> None:
        """Take one step per batch, in a compiled loop."""
        for step in tf.range(tf.shape(batches)[0]):
            rows = [ops.take(part, batches[step], axis=0) for part in self.training]
            self.step(Images(*rows), weights[step])

    def step(self, images: Images, factors) -> None:
        """Take one step; the factor of an absent task is zero."""
        before = [ops.copy(head.value) for head in self.heads]
        weights = list(self.weights.values())
        with tf.GradientTape() as tape:
            probes = ops.stack([probe.value for probe in self.probes])
            loss = ops.dot(factors, self.losses(images) - probes)
        gradients = tape.gradient(loss, [weight.value for weight in weights])
        self.optimizer.apply(gradients, weights)
        pairs = zip(self.heads, before, strict=True)
        moved = [ops.norm(ops.ravel(new - old)) for new, old in pairs]
        self.paths.assign_add(ops.stack(moved))

    def losses(self, images: Images):
        """Return the mean losses of the three tasks: [3]."""
        hidden = ops.tanh(images.features @ self.weights["trunk"])
        hidden = ops.pad(hidden, [[0, 0], [0, 1]], constant_values=1.0)
        digit, parity, centre = (hidden @ head for head in self.heads)
        odd, place = images.parity[:, None], images.centre[:, None]
        categorical = keras.losses.sparse_categorical_crossentropy
        losses = [
            categorical(images.digit, digit, from_logits=True),
            keras.losses.binary_crossentropy(odd, parity, from_logits=True),
            keras.losses.mean_squared_error(place, centre),
        ]
        return ops.stack([ops.mean(loss) for loss in losses])

    def measure(self) -> dict[str, float]:
        """Return name -> measured value after the steps so far."""
        probes = ops.stack([probe.value for probe in self.probes])
        values = self.losses(self.held_out), probes, self.paths
        loss, probe, path = (value.numpy().tolist() for value in values)
        measured = by_head(TASKS, loss=loss, probe=probe, path=path)
        for place in ("probe", "head"):
            for name in self.recipe.slots:
                weight = self.weights[f"{place}/{ABSENTEE}"]
                slot = self.optimizer.get_slot(weight, name)
                measured[f"state/{place}/{name}"] = self.norm(slot)
        return measured

    def norm(self, slot: keras.Variable | None) -> float:
        """Return the norm of a slot; 0 without one.

        Keras has no momentum slot for RMSProp if the momentum is 0. The momentum slot
        of SGD includes the learning rate.
        """
        if slot is None:
            return 0.0
        plain = self.recipe.optimizer != "MomentumOptimizer"
        unit = 1.0 if plain else dict(self.recipe.arguments)["learning_rate"]
        return float(ops.norm(ops.ravel(slot)).numpy()) / unit


def untrained(value) -> keras.Variable:
    """Return a variable that no optimizer updates, in the value's dtype."""
    return keras.Variable(value, dtype=value.dtype.name, trainable=False)
