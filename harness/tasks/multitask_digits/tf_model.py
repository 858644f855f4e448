"""The three tasks in TensorFlow; one compiled function takes many steps per call."""

from __future__ import annotations

import tensorflow as tf

from harness.errors import HarnessError
from harness.tasks.absent_heads.training import Recipe, by_head
from harness.tasks.multitask_digits.task import ABSENTEE, TASKS, Images, Plan
from lockstep import tf as lockstep


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
            with tf.device(f"/{self.device}:0"):
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
        self.weights = {name: tf.Variable(w) for name, w in plan.weights.items()}
        self.heads = [self.weights[f"head/{task}"] for task in TASKS]
        self.probes = [self.weights[f"probe/{task}"] for task in TASKS]
        self.paths = untrained(tf.zeros(len(TASKS)))
        if not self.recipe.optimizer:
            raise HarnessError(
                "optimizer: expected a name on TensorFlow, got a file; run it on "
                "pytorch or keras3."
            )
        make = getattr(lockstep, self.recipe.optimizer)
        self.optimizer = make(**dict(self.recipe.arguments))
        if self.recipe.wrapper != "none":
            strict = self.recipe.wrapper == "strict"
            wrap = lockstep.MultitaskOptimizerWrapper
            self.optimizer = wrap(self.optimizer, strict=strict)
        batches = tf.TensorSpec([None, plan.batches.shape[1]], tf.int32)
        weights = tf.TensorSpec([None, len(TASKS)], tf.float32)
        self.loop = tf.function(self.steps, input_signature=[batches, weights])
        self.loop.get_concrete_function()
        state = [self.paths, *self.optimizer.variables()]
        self.first_state = [(variable, variable.numpy()) for variable in state]

    def advance(self, batches, weights) -> None:
        """Take one step per batch: rows [steps, batch], weights [steps, tasks]."""
        self.loop(batches, weights)

    def steps(self, batches: tf.Tensor, weights: tf.Tensor) -> None:
        """Take one step per batch, in a compiled loop."""
        for step in tf.range(tf.shape(batches)[0]):
            images = Images(*(tf.gather(part, batches[step]) for part in self.training))
            self.step(images, weights[step])

    def step(self, images: Images, factors: tf.Tensor) -> None:
        """Take one step; the factor of an absent task is zero."""
        before = [tf.identity(head) for head in self.heads]
        weights = list(self.weights.values())
        with tf.GradientTape() as tape:
            losses = self.losses(images) - tf.stack(self.probes)
            loss = tf.tensordot(factors, losses, 1)
        gradients = tape.gradient(loss, weights)
        self.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        pairs = zip(self.heads, before, strict=True)
        self.paths.assign_add(tf.stack([tf.norm(new - old) for new, old in pairs]))

    def losses(self, images: Images) -> tf.Tensor:
        """Return the mean losses of the three tasks: [3]."""
        hidden = tf.tanh(images.features @ self.weights["trunk"])
        hidden = tf.pad(hidden, [[0, 0], [0, 1]], constant_values=1.0)
        digit, parity, centre = (hidden @ head for head in self.heads)
        losses = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(images.digit, digit),
            tf.nn.sigmoid_cross_entropy_with_logits(images.parity, parity[:, 0]),
            tf.math.squared_difference(centre[:, 0], images.centre),
        ]
        return tf.stack([tf.reduce_mean(loss) for loss in losses])

    def measure(self) -> dict[str, float]:
        """Return name -> measured value after the steps so far."""
        values = self.losses(self.held_out), tf.stack(self.probes), self.paths
        loss, probe, path = (value.numpy().tolist() for value in values)
        measured = by_head(TASKS, loss=loss, probe=probe, path=path)
        for place in ("probe", "head"):
            for name in self.recipe.slots:
                weight = self.weights[f"{place}/{ABSENTEE}"]
                slot = self.optimizer.get_slot(weight, name)
                measured[f"state/{place}/{name}"] = float(tf.norm(slot))
        return measured


def untrained(value) -> tf.Variable:
    """Return a variable that no optimizer updates."""
    return tf.Variable(value, trainable=False)
