"""Lion (Chen et al., 2023) in Keras 3."""

import keras


class Lion(keras.optimizers.Optimizer):
    def __init__(self, learning_rate, beta1=0.9, beta2=0.99):
        super().__init__(learning_rate=learning_rate, name="lion")
        self.beta1, self.beta2 = beta1, beta2

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self.m = [self.add_variable_from_reference(v, "m") for v in variables]

    def update_step(self, gradient, variable, learning_rate):
        m = self.m[self._get_variable_index(variable)]
        mixed = self.beta1 * m + (1 - self.beta1) * gradient
        self.assign_sub(variable, learning_rate * keras.ops.sign(mixed))
        self.assign(m, self.beta2 * m + (1 - self.beta2) * gradient)


def make(variables, learning_rate, **settings):
    return Lion(learning_rate, **settings)
