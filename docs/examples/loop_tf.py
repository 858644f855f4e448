import tensorflow as tf

from lockstep.tf import MultitaskOptimizerWrapper, clip_gradients_by_global_norm

tf1 = tf.compat.v1
with tf.Graph().as_default(), tf1.Session() as session:
    w = tf1.get_variable("w", initializer=[3.0, 4.0], use_resource=True)
    loss, batch = tf.reduce_sum(w**2), tf1.train.get_or_create_global_step()

    momentum = tf1.train.MomentumOptimizer(0.25, momentum=0.9)
    opt = MultitaskOptimizerWrapper(momentum)
    gradvars = opt.compute_gradients(loss)
    clipped, _ = clip_gradients_by_global_norm(gradvars, 15.0)
    train_op = opt.apply_gradients(clipped, global_step=batch)

    session.run(tf1.global_variables_initializer())
    session.run(train_op)
    print(*session.run([batch, w]))
