"""Tables of rows in Keras 3: layers and an optimizer in a custom training loop."""

from __future__ import annotations

import keras
import tensorflow as tf

from harness.tasks import own
from harness.tasks.embeddings.training import EmbeddingSettings, Plan
from lockstep import keras3 as lockstep


class Trainer:
    """Training inside ``tf.function``, traced once for all runs that share it."""

    def __init__(self, of: EmbeddingSettings, plan: Plan, loss, device: str) -> None:
        self.of, self.loss = of, loss
        self.columns, self.limited = plan.columns, plan.limited
        with keras.device(f"{device.replace('cuda', 'gpu')}:0"):
            self.compile({name: table.shape for name, table in plan.weights.items()})

    def compile(self, shapes) -> None:
        """Make layers and optimizer, trace the loop and save the initial state."""
        self.layers = {
            name: keras.layers.Embedding(*shape, name=name)
            for name, shape in shapes.items()
        }
        for layer in self.layers.values():
            layer.build()
        self.variables = [layer.embeddings for layer in self.layers.values()]
        settings, kind = self.of.optimizer, keras.optimizers.Optimizer
        if "file" in settings:
            self.optimizer = own.make(settings, self.variables, kind)
        else:
            make = getattr(lockstep, self.of.optimizer_class)
            self.optimizer = make(**self.of.arguments)
        if self.of.limit == "clip":
            axes = {self.layers[n].embeddings.path: [1] for n in self.limited}
            self.optimizer = lockstep.VariableClippingOptimizer(
                self.optimizer, axes, self.of.max_norm
            )
        self.optimizer.build(self.variables)
        width = sum(len(columns) for columns in self.columns.values())
        batches = tf.TensorSpec([None, None, width], tf.int32)
        self.loop = tf.function(self.steps, input_signature=[batches])
        self.loop.get_concrete_function()
        self.lookups = tf.function(self.look_up_often)
        state = self.optimizer.variables
        self.first_state = [(each, each.numpy().copy()) for each in state]

    def reset(self, weights) -> None:
        """Set the tables to their first values and reset the optimizer."""
        for name, value in weights.items():
            self.layers[name].embeddings.assign(value)
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
                name: self.look_up(name, keras.ops.take(batch, columns, axis=1))
                for name, columns in self.columns.items()
            }
            loss = self.loss(rows)
        values = [variable.value for variable in self.variables]
        self.optimizer.apply(tape.gradient(loss, values), self.variables)

    def normalise(self) -> None:
        """Scale every row of the limited tables to the norm ``max_norm``."""
        for name in self.limited:
            table = self.layers[name].embeddings
            norms = keras.ops.norm(table, axis=1, keepdims=True)
            table.assign(table * (self.of.max_norm / norms))

    def look_up(self, name: str, ids: tf.Tensor) -> tf.Tensor:
        """Return rows [..., width]; gradients flow through a limit in the lookup."""
        rows = self.layers[name](ids)
        if self.of.limit != "lookup" or name not in self.limited:
            return rows
        norms = keras.ops.norm(rows, axis=-1, keepdims=True)
        limit = self.of.max_norm
        return rows * (limit / keras.ops.maximum(norms, limit))

    def tables(self) -> dict:
        """Return the values of every table by name."""
        return {
            name: layer.embeddings.numpy().copy() for name, layer in self.layers.items()
        }

    def serve(self, table: str, ids) -> None:
        """Look up ids [lookups, ids] without training; return when they are ready."""
        self.lookups(table, tf.constant(ids)).numpy()

    def look_up_often(self, table: str, ids: tf.Tensor) -> tf.Tensor:
        """Return a sum over one entry of each lookup, so that none is optimized out."""
        total = tf.constant(0.0)
        for row in ids:
            total += self.look_up(table, row)[0, 0]
        return total
