import keras

from lockstep import keras3 as lockstep

a, b = keras.Variable([0.0], name="a"), keras.Variable([0.0], name="b")


def train(absent):
    step = lockstep.optimize_loss(
        lambda loss: keras.ops.sum(loss()),
        keras.optimizers.SGD,
        {},
        1.0,
        var_list=[a, b],
        iter_size=2,
    )
    for _ in range(2):
        step(lambda: a + b)
        step(absent)  # a micro-batch without examples for b


try:
    train(lambda: 1.0 * a)
except ValueError as error:
    print("ValueError:", error)
train(lambda: 1.0 * a + 0.0 * b)
print("a", a.numpy().tolist(), "b", b.numpy().tolist())
