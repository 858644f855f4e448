"""Tables of rows in TensorFlow; one compiled function takes many steps per call."""

from __future__ import annotations

import tensorflow as tf

from harness.tasks import own
from harness.tasks.embeddings.training import EmbeddingSettings, Plan
from lockstep import tf as lockstep

Rows = dict[str, tf.Tensor]


class Trainer:
    """Training inside ``tf.function``, traced once for all runs that share it."""

    def __init__(self, of: EmbeddingSettings, plan: Plan, loss, device: str) -> None:
        self.of, self.loss = of, loss
        self.columns, self.limited = plan.columns, plan.limited
        with tf.device(f"/{device.replace('cuda', 'gpu')}:0"):
            self.compile({name: table.shape for name, table in plan.weights.items()})

    def compile(self, shapes) -> None:
        """Make the tables, trace the loop and save the initial state."""
        self.build(shapes)
        width = sum(len(columns) for columns in self.columns.values())
        batches = tf.TensorSpec([None, None, width], tf.int32)
        self.loop = tf.function(self.steps, input_signature=[batches])
        self.loop.get_concrete_function()  # creates the slots
        self.lookups = tf.function(self.look_up_often)
        self.first_state = [(each, each.numpy()) for each in self.state()]

    def build(self, shapes) -> None:
        """Make the tables and the optimizer."""
        self.weights = {n: tf.Variable(tf.zeros(shape)) for n, shape in shapes.items()}
        self.optimizer = own.optimizer_of(self.of.optimizer, lockstep)
        if self.of.limit == "clip":
            axes = {self.weights[name].ref(): [1] for name in self.limited}
            self.optimizer = lockstep.VariableClippingOptimizer(
                self.optimizer, axes, self.of.max_norm
            )

    def apply(self, gradients) -> None:
        pairs = zip(gradients, self.weights.values(), strict=True)
        self.optimizer.apply_gradients(pairs)

    def state(self) -> list:
        return self.optimizer.variables()

    def reset(self, weights) -> None:
        """Set the tables to their first values and reset the optimizer."""
        for name, value in weights.items():
            self.weights[name].assign(value)
        for variable, value in self.first_state:
            variable.assign(value)

    def advance(self, batches) -> None:
        """Train on batches [steps, batch, ids] int32; return when that is done."""
        self.loop(batches).numpy()

    def steps(self, batches: tf.Tensor) -> tf.Tensor:
        """Take one step per batch; return their number, ready only after them."""
        for step in tf.range(tf.shape(batches)[0]):
            self.step(batches[step])
        return tf.shape(batches)[0]

    def step(self, batch: tf.Tensor) -> None:
        """Take one step on a batch [batch, ids] int32."""
        if self.of.limit == "normalise":
            self.normalise()
        with tf.GradientTape() as tape:
            rows = {
                name: self.look_up(name, tf.gather(batch, columns, axis=1))
                for name, columns in self.columns.items()
            }
            loss = self.loss(rows)
        self.apply(tape.gradient(loss, [*self.weights.values()]))

    def normalise(self) -> None:
        """Scale every row of the limited tables to the norm ``max_norm``."""
        for name in self.limited:
            table = self.weights[name]
            norms = tf.norm(table, axis=1, keepdims=True)
            table.assign(table * (self.of.max_norm / norms))

    def look_up(self, name: str, ids: tf.Tensor) -> tf.Tensor:
        """Return rows [..., width]; gradients flow through a limit in the lookup."""
        limited = self.of.limit == "lookup" and name in self.limited
        limit = self.of.max_norm if limited else None
        return tf.nn.embedding_lookup(self.weights[name], ids, max_norm=limit)

    def tables(self) -> dict:
        """Return the values of every table by name."""
        return {name: weight.numpy() for name, weight in self.weights.items()}

    def serve(self, table: str, ids) -> None:
        """Look up ids [lookups, ids] without training; return when they are ready."""
        self.lookups(table, tf.constant(ids)).numpy()

    def look_up_often(self, table: str, ids: tf.Tensor) -> tf.Tensor:
        """Return a sum over one entry of each lookup, so that none is optimized out."""
        total = tf.constant(0.0)
        for row in ids:
            total += self.look_up(table, row)[0, 0]
        return total


# -- losses of the tasks ---------------------------------------------------------------


def recommender(rows: Rows) -> tf.Tensor:
    """Return sum log(1 + exp(-user . chosen)) + log(1 + exp(user . other))."""
    scores = tf.reduce_sum(rows["user"] * rows["item"], axis=2)
    chosen, other = tf.unstack(scores, axis=1)
    return tf.reduce_sum(tf.nn.softplus(-chosen) + tf.nn.softplus(other))


def link_prediction(rows: Rows, margin: float, penalty: float) -> tf.Tensor:
    """Return sum max(0, margin + d(true) - d(false)), d = |head + relation - tail|.

    Plus ``penalty`` times the sum of the squares of the batch's entities. An entity
    counts as often as the batch names it.
    """
    head, tail, false_head, false_tail = tf.unstack(rows["entity"], axis=1)
    relation = rows["relation"][:, 0]
    true = tf.norm(head + relation - tail, axis=1)
    false = tf.norm(false_head + relation - false_tail, axis=1)
    ranking = tf.reduce_sum(tf.nn.relu(margin + true - false))
    if not penalty:
        return ranking
    return ranking + penalty * tf.reduce_sum(tf.square(rows["entity"]))
