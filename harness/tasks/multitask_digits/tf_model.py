"""The three tasks in TensorFlow; one compiled function takes many steps per call."""

from __future__ import annotations

import tensorflow as tf

from harness.tasks import own
from harness.tasks.absent_heads.training import Recipe, by_head
from harness.tasks.multitask_digits.task import ABSENTEE, TASKS, Images, Plan
from lockstep import tf as lockstep


class Trainer:
    """Training inside ``tf.function``, traced once for all runs of this recipe."""

    def __init__(self, recipe: Recipe, device: str) -> None:
        self.recipe, self.slots = recipe, recipe.slots
        self.device = {"cuda": "gpu"}.get(device, device)
        self.loop = None

    def reset(self, plan: Plan) -> None:
        """Use the images and first weights of a plan; reset all state."""
        if self.loop is None:
            with tf.device(f"/{self.device}:0"):
                self.compile(plan)
        self.training, self.held_out = plan.training, plan.held_out
        for variable, value in self.first_state:
            variable.assign(value)
        for name, value in plan.weights.items():
            self.weights[name].assign(value)

    def compile(self, plan: Plan) -> None:
        """Make the variables, trace the loop and save the initial state."""
        self.build(plan)
        self.paths = tf.Variable(tf.zeros(len(TASKS)))
        images = [tf.TensorSpec([None, *p.shape[1:]], p.dtype) for p in plan.training]
        batches = tf.TensorSpec([None, plan.batches.shape[1]], tf.int32)
        factors = tf.TensorSpec([None, len(TASKS)], tf.float32)
        signature = [Images(*images), batches, factors]
        self.loop = tf.function(self.steps, input_signature=signature)
        self.loop.get_concrete_function()  # creates the slots
        state = [self.paths, *self.state()]
        self.first_state = [(variable, variable.numpy()) for variable in state]

    def build(self, plan: Plan) -> None:
        """Make the weights and the optimizer."""
        self.weights = {name: tf.Variable(w) for name, w in plan.weights.items()}
        self.optimizer = own.optimizer_of(self.recipe.optimizer, lockstep)
        if self.recipe.wrapper != "none":
            strict = self.recipe.wrapper == "strict"
            wrap = lockstep.MultitaskOptimizerWrapper
            self.optimizer = wrap(self.optimizer, strict=strict)

    def apply(self, gradients: list[tf.Tensor]) -> None:
        pairs = zip(gradients, self.weights.values(), strict=True)
        self.optimizer.apply_gradients(pairs)

    def state(self) -> list:
        return self.optimizer.variables()

    def advance(self, batches, factors) -> None:
        """Take one step per batch: rows [steps, batch], factors [steps, tasks]."""
        self.loop(self.training, batches, factors)

    def steps(self, images: Images, batches: tf.Tensor, factors: tf.Tensor) -> None:
        """Take one step per batch, in a compiled loop."""
        for step in tf.range(tf.shape(batches)[0]):
            batch = Images(*(tf.gather(part, batches[step]) for part in images))
            self.step(batch, factors[step])

    def step(self, images: Images, factors: tf.Tensor) -> None:
        """Take one step; the factor of an absent task is zero."""
        heads = [self.weights[f"head/{task}"] for task in TASKS]
        before = [tf.identity(head) for head in heads]
        with tf.GradientTape() as tape:
            losses = self.losses(images) - self.probes()
            loss = tf.tensordot(factors, losses, 1)
        self.apply(tape.gradient(loss, [*self.weights.values()]))
        pairs = zip(heads, before, strict=True)
        self.paths.assign_add(tf.stack([tf.norm(new - old) for new, old in pairs]))

    def probes(self) -> tf.Tensor:
        """Return the weights of the probes: [3]."""
        return tf.stack([self.weights[f"probe/{task}"] for task in TASKS])

    def losses(self, images: Images) -> tf.Tensor:
        """Return the mean losses of the three tasks: [3]."""
        hidden = tf.tanh(images.features @ self.weights["trunk"])
        hidden = tf.pad(hidden, [[0, 0], [0, 1]], constant_values=1.0)
        digit, parity, centre = (hidden @ self.weights[f"head/{t}"] for t in TASKS)
        losses = [
            tf.nn.sparse_softmax_cross_entropy_with_logits(images.digit, digit),
            tf.nn.sigmoid_cross_entropy_with_logits(images.parity, parity[:, 0]),
            tf.math.squared_difference(centre[:, 0], images.centre),
        ]
        return tf.stack([tf.reduce_mean(loss) for loss in losses])

    def measure(self) -> dict[str, float]:
        """Return name -> measured value after the steps so far."""
        values = self.losses(self.held_out), self.probes(), self.paths
        loss, probe, path = (value.numpy().tolist() for value in values)
        measured = by_head(TASKS, loss=loss, probe=probe, path=path)
        for slot in self.slots:
            value = self.optimizer.get_slot(self.weights[f"head/{ABSENTEE}"], slot)
            measured[f"state/head/{slot}"] = float(tf.norm(value))
        return measured
