"""Loss scales among the replicas of one process: all take a step, or none does."""

from __future__ import annotations

from collections.abc import Callable

from harness.tests.shared_processes import TWO_DEVICES

REPLICAS = """
cpu = tf.config.list_physical_devices("CPU")[0]
two = [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
from lockstep import tf as ls
from lockstep.tf import strict

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def trained(names, factors):
    with strategy.scope():
        weight = tf.Variable([1.0, 2.0], name="weight")
        scale = names.DynamicLossScale(8.0, increment_period=2)
        base = names.MomentumOptimizer(0.125, 0.5)
        optimizer = names.MixedPrecisionLossScaleOptimizer(base, scale)

    def step(factor):
        loss = lambda: factor * tf.reduce_sum(weight * weight)
        optimizer.minimize(loss, var_list=[weight])

    @tf.function
    def run(values):
        pick = lambda context: values[context.replica_id_in_sync_group]
        given = strategy.experimental_distribute_values_from_function(pick)
        strategy.run(step, args=(given,))

    for values in factors:
        run([tf.constant(value) for value in values])
    slot = base.get_slot(weight, "momentum")
    found = [strategy.experimental_local_results(v) for v in (weight, slot)]
    copies = [[copy.numpy().tolist() for copy in copies] for copies in found]
    return copies, float(scale()), int(scale.good_steps.numpy())

inf = float("inf")
print(*trained(strict, [(1.0, 3.0)]))
print(*trained(strict, [(1.0, 3.0), (1.0, inf)]))
print(*trained(ls, [(1.0, 3.0), (1.0, inf)]))
"""


def test_strict_steps_on_all_replicas_or_on_none(shared: Callable[..., str]) -> None:
    one, overflow, default = shared(TWO_DEVICES, REPLICAS).splitlines()
    # The gradients of both are added: g = 2 w (1 + 3), w = w - g / 8.
    state = "[[[0.0, 0.0], [0.0, 0.0]], [[8.0, 16.0], [8.0, 16.0]]]"
    assert one == f"{state} 8.0 1"
    assert overflow == f"{state} 4.0 0"
    assert default == overflow
