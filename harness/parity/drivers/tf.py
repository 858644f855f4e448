"""TensorFlow as the harness drives it, in four modes.

======== =========================================================================
eager    one operation at a time
function inside ``tf.function``
graph    ``tf.Graph`` and Session, resource variables, control flow v2
v1       the same under ``disable_v2_behavior()``, reference variables unless asked
======== =========================================================================

The originals were recorded one operation
at a time. TensorFlow's rewriting of graphs (grappler's meta optimizer) reorders
arithmetic, so it is off here. The mode ``function`` switches it off for the whole
process and ``v1`` changes TensorFlow's behaviour for good: give each mode a process of
its own, and each case a driver.
"""

from __future__ import annotations

from types import ModuleType

from harness.parity.drivers.tensors import use_device
from harness.parity.drivers.tf_eager import EagerDriver, FunctionDriver
from harness.parity.drivers.tf_graph import GraphDriver, V1Driver

__all__ = ["EagerDriver", "FunctionDriver", "GraphDriver", "V1Driver", "make_driver"]


def make_driver(mode: str, names: ModuleType, device: str = "cpu") -> EagerDriver:
    """Return the driver for ``mode`` and the names under test.

    TensorFlow puts on a GPU what it can once it sees one: on the CPU it sees none.
    """
    use_device(device)
    drivers = (EagerDriver, FunctionDriver, GraphDriver, V1Driver)
    return {driver.mode: driver for driver in drivers}[mode](names)
