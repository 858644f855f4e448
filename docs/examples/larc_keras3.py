import keras

from lockstep import keras3 as lockstep

kernel = keras.Variable([3.0, 4.0], name="kernel")
bias = keras.Variable([0.0, 0.0], name="bias")
gradients = keras.ops.array([[60.0, 80.0], [1.0, 2.0]])
pairs = [(gradients[0], kernel), (gradients[1], bias)]


def show(processed):
    print([[round(float(x), 4) for x in gradient] for gradient, _ in processed])


larc = {"larc_eta": 0.01, "larc_mode": "clip"}
show(lockstep.post_process_gradients(pairs, [], 0.1, None, larc))
show(lockstep.clip_gradients_by_norm(pairs, 10.0))
