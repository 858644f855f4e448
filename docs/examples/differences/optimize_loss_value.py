from itertools import pairwise, product

import tensorflow as tf

from lockstep import tf as default
from lockstep.tf import strict

v1 = tf.compat.v1


def steps(lockstep):
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=2.0, use_resource=False)
        loss = tf.square(w)
        train = lockstep.optimize_loss(loss, "SGD", {}, lambda global_step: 0.25)
        session.run(v1.global_variables_initializer())
        weights, losses = [session.run(w)], []
        for _ in range(2):
            losses.append(session.run(train).item())
            weights.append(session.run(w))
    return weights, tuple(losses)


weights, by_default = steps(default)
_, under_strict = steps(strict)
ours = {"default": by_default, "strict": under_strict}
either = [(float(w**2), float(after**2)) for w, after in pairwise(weights)]
for trace in product(*either):
    names = [name for name, losses in ours.items() if losses == trace]
    print(f"{list(trace)}  {' and '.join(names)}".rstrip())
