"""How far three Adams go with the epsilon that each framework has by default."""

import numpy as np

EPSILON = {"TensorFlow 1": 1e-8, "Keras 3": 1e-7, "PyTorch": 1e-8}
SIZES = (1.0, 1e-4, 1e-6, 1e-7, 1e-8)
STEPS = (1, 1000)


def updates(name, gradients):
    """Yield each update of weights with these gradients, in learning rates."""
    m = v = 0.0
    for t, g in enumerate(gradients, 1):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        root, epsilon = np.sqrt(1 - 0.999**t), EPSILON[name]
        if name == "PyTorch":  # epsilon comes after the correction of v
            epsilon *= root
        yield root / (1 - 0.9**t) * m / (np.sqrt(v) + epsilon)


# normal gradients with mean 1 and deviation 1, multiplied by the size
series = 1 + np.random.default_rng(0).standard_normal((max(STEPS), 200))
print("gradients  steps " + "".join(f"{name:>14}" for name in EPSILON))
for size in SIZES:
    for steps in STEPS:
        print(f"{size:9g} {steps:6} ", end="")
        for name in EPSILON:
            way = sum(updates(name, size * series[:steps]))
            print(f"{np.abs(way).mean() / steps:14.3g}", end="")
        print()


def draw(figure):
    """Draw the first and the last update over the size of a constant gradient."""
    sizes = np.logspace(-10, -4, 61)
    styles = dict(zip(EPSILON, ("-", "--", ":"), strict=True))
    colors = dict(zip(EPSILON, ("#d55e00", "#009e73", "#0072b2"), strict=True))
    panels = figure.subplots(1, 2, sharey=True)
    for panel, step in zip(panels, STEPS, strict=True):
        for name, style in styles.items():
            *_, last = updates(name, [sizes] * step)
            panel.semilogx(sizes, last, style, color=colors[name], label=name)
        panel.set_title(f"step {step}")
        panel.set_xlabel("gradient")
    panels[0].set_ylabel("update / learning rate")
    names = panels[0].get_legend_handles_labels()
    figure.legend(*names, loc="outside lower center", ncols=3)
