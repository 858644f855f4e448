import tensorflow as tf

from lockstep import tf as lockstep

kernel = tf.Variable([3.0, 4.0], name="kernel")
bias = tf.Variable([0.0, 0.0], name="bias")
pairs = [(tf.constant([60.0, 80.0]), kernel), (tf.constant([1.0, 2.0]), bias)]


def show(processed):
    print([[round(float(x), 4) for x in gradient] for gradient, _ in processed])


larc = {"larc_eta": 0.01, "larc_mode": "clip"}
show(lockstep.post_process_gradients(pairs, [], 0.1, None, larc))
show(lockstep.clip_gradients_by_norm(pairs, 10.0))
